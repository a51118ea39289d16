#include "deploy/pages/program.hpp"

#include "daemon/cli/program/command_line.hpp"
#include "daemon/control/own_version.hpp"
#include "daemon/supervisor/program/main_flags.hpp"

namespace muster::pages {

Program muster_program() {
  return {cli::command_outline(), cli::command_manual(), control::own_version()};
}

Program musterd_program() {
  return {supervisor::flag_outline(), supervisor::daemon_manual(), control::own_version()};
}

}  // namespace muster::pages
