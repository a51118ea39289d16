// How a supervisor gives way to another program: it asks first, then becomes it.
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/replacement.hpp"

namespace muster::supervisor {
namespace {

constexpr char kEndsAnyway[] = "the daemon is shutting down; start the other program once it has ended";

}  // namespace

// `program` may be empty: the one that was started, which a package may have replaced.
void Supervisor::begin_upgrade(const std::string& program, std::function<void(const Status&)> refused) {
  const std::string next = program.empty() ? options_.program : program;
  if (options_.program.empty())
    return refused(failure(Code::kUnsupported, "this daemon runs inside another program; restart that one"));
  if (draining_) return refused(failure(Code::kState, kEndsAnyway));
  if (check_) return refused(failure(Code::kBusy, "an upgrade is under way; wait for its end"));
  save();
  const ProgramCheck::Question question{next,
                                        options_.arguments,
                                        state_format().version,
                                        options_.random_hex(),
                                        state_format().protocol,
                                        entrance_.is_managers() ? "" : entrance_.socket().path()};
  auto check = ProgramCheck::start(
      loop_, question, state_file_.descriptor(), [this, next, refused](const Status& answer) {
        // Later: the check is still on the stack.
        loop_.post([this, next, refused, answer] {
          check_.reset();
          const bool late = draining_;
          refused(!answer.ok() ? answer : late ? failure(Code::kState, kEndsAnyway) : give_way(next));
        });
      });
  if (!check) return refused(check.error());
  check_ = *std::move(check);
}

// Returns only if the other program does not start.
Status Supervisor::give_way(const std::string& program) {
  MUSTER_LOG(kInfo, "supervisor", "gives way to {}", program);
  state_.upgrade_ns = clock_.now().count();
  save();
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", state_.upgrade_ns / 1000));
  const Status failed = replace_program(program, options_.arguments, store_.kept());
  state_.upgrade_ns = 0;
  save();
  tell("READY=1");
  return failed;
}

}  // namespace muster::supervisor
