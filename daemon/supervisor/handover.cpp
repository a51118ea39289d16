#include "daemon/supervisor/handover.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/replacement.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

constexpr char kEndsAnyway[] = "the daemon is shutting down; start the other program once it has ended";

}  // namespace

Handover::Handover(control::Loop& loop, const Clock& clock, const Options& options, const Entrance& entrance,
                   const RunningJobs& jobs, const DescriptorStore& store, SavedState& saved,
                   std::function<void()> save)
    : loop_(loop),
      clock_(clock),
      options_(options),
      entrance_(entrance),
      jobs_(jobs),
      store_(store),
      saved_(saved),
      save_(std::move(save)) {}

void Handover::begin(const std::string& program, const Refused& refused) {
  const std::string next = program.empty() ? options_.program : program;
  if (options_.program.empty())
    return refused(failure(Code::kUnsupported, "this daemon runs inside another program; restart that one"));
  if (jobs_.closed()) return refused(failure(Code::kState, kEndsAnyway));
  if (check_) return refused(failure(Code::kBusy, "an upgrade is under way; wait for its end"));
  save_();
  const ProgramCheck::Question question{next,
                                        options_.arguments,
                                        state_format().version,
                                        options_.random_hex(),
                                        state_format().protocol,
                                        entrance_.is_managers() ? "" : entrance_.socket().path()};
  auto check =
      ProgramCheck::start(loop_, question, saved_.file(), [this, next, refused](const Status& answer) {
        // Posted, because the check is still on the stack.
        loop_.post([this, next, refused, answer] { on_checked(next, answer, refused); });
      });
  if (!check) return refused(check.error());
  check_ = *std::move(check);
}

void Handover::on_checked(const std::string& program, const Status& answer, const Refused& refused) {
  check_.reset();
  if (!answer.ok()) return refused(answer);
  if (jobs_.closed()) return refused(failure(Code::kState, kEndsAnyway));
  refused(give_way(program));
}

// Returns only if the other program cannot be started.
Status Handover::give_way(const std::string& program) {
  MUSTER_LOG(kInfo, "supervisor", "gives way to {}", program);
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
