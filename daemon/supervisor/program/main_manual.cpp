#include "daemon/control/texts/main_manual.hpp"
#include "daemon/supervisor/program/main_flags.hpp"

namespace muster::supervisor {

const control::Manual& daemon_manual() {
  static const control::Manual manual{
      .synopsis = "[OPTIONS]",
      .description =
          {"musterd is the one daemon of a node. It listens at two sockets, starts an engine for each job "
           "and "
           "lets "
           "the job's ranks in. It runs in the foreground, writes its log to standard error, and ends at "
           "SIGTERM once its ranks have left, or have had liveness.drain_timeout for it.",
           "Settings come from the flags, the environment, the configuration and the defaults, the strongest "
           "first. --print-config shows what is in force, and why.",
           "Jobs and ranks go on while the daemon is replaced: see muster upgrade in muster(1). A service "
           "manager that keeps descriptors (FileDescriptorStoreMax=) lets them outlive a kill too."},
      .examples = {{"musterd --check-config", "Says what is wrong with the configuration, and ends."},
                   {"musterd --set limits.jobs_max=4 --set log.level=debug", "Two settings for this start."},
                   {"musterd --directory /run/user/1000/muster", "A daemon of one user."}},
      .environment = {{"MUSTER_SET_…",
                       "A setting: MUSTER_SET_node__workers=4 is node.workers, two underscores for a dot."},
                      {"NOTIFY_SOCKET", "Where a service manager hears that the daemon is ready."},
                      {"LISTEN_FDS", "The socket and what a former daemon has kept, from a service manager."},
                      {"JOURNAL_STREAM", "Tells that the journal reads standard error (log.format auto)."}},
      .files = {{kDefaultConfig, "The settings, musterd.yaml(5); not needed."},
                {"/run/muster", "The directory of the sockets: node.runtime_directory."}},
      .exit_codes = {{"0", "after a shutdown"},
                     {"1", "it could not start"},
                     {"2", "wrong usage or configuration"}},
      .see_also = {"muster(1)", "musterd.yaml(5)"}};
  return manual;
}

}  // namespace muster::supervisor
