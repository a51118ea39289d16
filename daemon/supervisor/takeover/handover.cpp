#include "daemon/supervisor/takeover/handover.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/takeover/replacement.hpp"

#include <filesystem>
#include <utility>

namespace muster::supervisor {
namespace {

constexpr char kEndsAnyway[] = "the daemon is shutting down; start the other program once it has ended";

}  // namespace

Handover::Handover(control::Loop& loop, const Clock& clock, const Options& options,
                   const Listeners& listeners, const RunningJobs& jobs, const DescriptorStore& store,
                   SavedState& saved, std::function<void()> save)
    : loop_(loop),
      clock_(clock),
      options_(options),
      listeners_(listeners),
      jobs_(jobs),
      store_(store),
      saved_(saved),
      save_(std::move(save)) {}

Result<TrustedProgram> Handover::program_at(const std::string& path) const {
  const std::string own = std::filesystem::path(options_.program).parent_path();
  return TrustedProgram::open(
      path, options_.program_folders.empty() ? std::vector<std::string>{own} : options_.program_folders);
}

void Handover::begin(const std::string& program, const Refused& refused) {
  if (options_.program.empty())
    return refused(failure(Code::kUnsupported, "this daemon runs inside another program; restart that one"));
  if (jobs_.closed()) return refused(failure(Code::kState, kEndsAnyway));
  if (check_) return refused(failure(Code::kBusy, "an upgrade is under way; wait for its end"));
  auto next = program_at(program.empty() ? options_.program : program);
  if (!next) return refused(next.error());
  next_.emplace(*std::move(next));
  save_();
  const ProgramCheck::Question question{options_.arguments, state_format().version, options_.random_hex(),
                                        state_format().protocol, listeners_.directory()};
  auto check =
      ProgramCheck::start(loop_, *next_, question, saved_.file(), [this, refused](const Status& answer) {
        // Posted, because the check is still on the stack.
        loop_.post([this, refused, answer] { on_checked(answer, refused); });
      });
  if (!check) return refused(check.error());
  check_ = *std::move(check);
}

void Handover::on_checked(const Status& answer, const Refused& refused) {
  check_.reset();
  const TrustedProgram program = *std::exchange(next_, std::nullopt);
  if (!answer.ok()) return refused(answer);
  if (jobs_.closed()) return refused(failure(Code::kState, kEndsAnyway));
  refused(give_way(program));
}

// Returns only if the other program cannot be started.
Status Handover::give_way(const TrustedProgram& program) {
  MUSTER_LOG(kInfo, "supervisor", "gives way to {}", program.path());
  const Instant now = clock_.now();
  saved_.set_upgrade(now);
  save_();
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.count() / 1000));
  const Status failed = replace_program(program, options_.arguments, store_.kept());
  saved_.set_upgrade(Instant(0));
  save_();
  tell("READY=1");
  return failed;
}

void Handover::tell(const std::string& text) const {
  if (options_.notify) options_.notify(text, {});
}

}  // namespace muster::supervisor
