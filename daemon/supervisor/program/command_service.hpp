// CommandService: answers command lines. JobCommands and StatusReport answer what concerns one job or only
// reads. This class itself shuts the daemon down or replaces it. Commands: daemon/control/README.md.
#pragma once

#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/program/drain.hpp"
#include "daemon/supervisor/program/job_commands.hpp"
#include "daemon/supervisor/program/status_report.hpp"
#include "daemon/supervisor/takeover/handover.hpp"

#include <string>

namespace muster::supervisor {

// Owns    nothing.
// Thread  the supervisor's loop.
// Bound   as Connections.
// Fails   never: each command is answered once, also with its failure. A successful upgrade is not answered:
//         the connection ends with this program, and the next one tells its version.
class CommandService {
 public:
  using Caller = Connections::Caller;

  CommandService(JobCommands& job_commands, const StatusReport& report, Handover& handover, Drain& drain,
                 const std::string& directory)
      : job_commands_(job_commands),
        report_(report),
        handover_(handover),
        drain_(drain),
        directory_(directory) {}

  void run(const Caller& caller, const control::Json& body);

 private:
  void dispatch(const std::string& command, const Caller& caller, const control::Json& body);
  void upgrade(const Caller& caller, const control::Json& body);
  void shut_down(const Caller& caller, const control::Json& body);

  JobCommands& job_commands_;
  const StatusReport& report_;
  Handover& handover_;
  Drain& drain_;
  const std::string& directory_;  // of the sockets
};

}  // namespace muster::supervisor
