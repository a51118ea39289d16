#include "daemon/supervisor/command_service.hpp"

#include "daemon/control/own_version.hpp"

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;

Status may_govern(const Caller& caller, const char* what) {
  if (caller.uid == 0 || caller.uid == geteuid()) return {};
  return failure(Code::kDenied, "only root and user {} may {}", geteuid(), what);
}

}  // namespace

void CommandService::run(const Caller& caller, const Json& body, const Reply& reply) {
  try {
    dispatch(body.value("command", ""), caller, body, reply);
  } catch (const Json::exception& error) {  // a field of a wrong type
    reply(control::failed(failure(Code::kProtocol, "the command is not well-formed: {}", error.what())), {});
  }
}

void CommandService::dispatch(const std::string& command, const Caller& caller, const Json& body,
                              const Reply& reply) {
  if (command == "version") return reply(control::success(report_.version()), {});
  if (command == "status") return reply(control::success(report_.status(caller.uid)), {});
  if (command == "jobs") return report_.jobs(caller.uid, body, reply);
  if (command == "upgrade") return upgrade(caller, body, reply);
  if (command == "shutdown") return shut_down(caller, body, reply);
  if (job_commands_.run(command, caller, body, reply)) return;
  reply(control::failed(failure(Code::kBadArgument, "the daemon ({}) knows no command '{}'",
                                control::own_version(), command)),
        {});
}

void CommandService::upgrade(const Caller& caller, const Json& body, const Reply& reply) {
  const Status allowed = may_govern(caller, "upgrade the daemon");
  if (!allowed.ok()) return reply(control::failed(allowed), {});
  handover_.begin(body.value("program", ""),
                  [reply](const Status& refused) { reply(control::failed(refused), {}); });
}

void CommandService::shut_down(const Caller& caller, const Json& body, const Reply& reply) {
  const Status allowed = may_govern(caller, "shut the daemon down");
  if (!allowed.ok()) return reply(control::failed(allowed), {});
  const bool may_leave = body.value("drain", true);
  reply(control::success({{"drain_timeout_ns", drain_.times().latest().count()}}), {});
  drain_.begin(may_leave ? Drain::Ranks::kMayLeave : Drain::Ranks::kMustLeave);
}

}  // namespace muster::supervisor
