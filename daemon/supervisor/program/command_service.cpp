#include "daemon/supervisor/program/command_service.hpp"

#include "api/shm/endpoint.hpp"
#include "daemon/control/administrators.hpp"
#include "daemon/control/own_version.hpp"
#include "daemon/supervisor/jobs/job_key.hpp"

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;

Status may_govern(const Connections::Caller& caller, const char* what, const std::string& directory) {
  if (caller.actor.governs) return {};
  return failure(Code::kDenied, "only {} may {}, on this node and by {}; this is {}",
                 control::administrators(geteuid()), what, shm::control_socket(directory),
                 control::text_of(caller.actor.who));
}

}  // namespace

void CommandService::run(const Connections::Caller& caller, const Json& body) {
  try {
    const auto key = digest_of_key(body.value("job_key", ""));
    if (!key) return caller.reply(control::failed(key.error()), {});
    Connections::Caller known = caller;
    known.actor.key = *key;
    Json question = body;
    question.erase("job_key");
    dispatch(body.value("command", ""), known, question);
  } catch (const Json::exception& error) {  // a field of a wrong type
    caller.reply(
        control::failed(failure(Code::kProtocol, "the command is not well-formed: {}", error.what())), {});
  }
}

void CommandService::dispatch(const std::string& command, const Connections::Caller& caller,
                              const Json& body) {
  if (command == "version") return caller.reply(control::success(report_.version()), {});
  if (command == "status") return caller.reply(control::success(report_.status(caller.actor)), {});
  if (command == "jobs") return report_.jobs(caller, body);
  if (command == "costs") return caller.reply(control::success(report_.costs()), {});
  if (command == "upgrade") return upgrade(caller, body);
  if (command == "shutdown") return shut_down(caller, body);
  if (job_commands_.run(command, caller, body)) return;
  caller.reply(control::failed(failure(Code::kBadArgument, "the daemon ({}) knows no command '{}'",
                                       control::own_version(), command)),
               {});
}

void CommandService::upgrade(const Connections::Caller& caller, const Json& body) {
  const Status allowed = may_govern(caller, "upgrade the daemon", directory_);
  if (!allowed.ok()) return caller.reply(control::failed(allowed), {});
  handover_.begin(body.value("program", ""),
                  [reply = caller.reply](const Status& refused) { reply(control::failed(refused), {}); });
}

void CommandService::shut_down(const Connections::Caller& caller, const Json& body) {
  const Status allowed = may_govern(caller, "shut the daemon down", directory_);
  if (!allowed.ok()) return caller.reply(control::failed(allowed), {});
  const bool may_leave = body.value("drain", true);
  caller.reply(control::success({{"drain_timeout_ns", drain_.times().latest().count()}}), {});
  drain_.begin(may_leave ? Drain::Ranks::kMayLeave : Drain::Ranks::kMustLeave);
}

}  // namespace muster::supervisor
