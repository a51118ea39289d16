// The command line of `muster`, declared once: the program parses with it, and manual page and completions
// are made from it.
#pragma once

#include "daemon/cli/ask/flight_command.hpp"
#include "daemon/cli/ask/top_command.hpp"
#include "daemon/cli/local/certs_command.hpp"
#include "daemon/cli/local/checkpoint_command.hpp"
#include "daemon/cli/local/mesh_command.hpp"
#include "daemon/cli/local/halo_command.hpp"
#include "daemon/cli/local/plan_command.hpp"
#include "daemon/cli/run/run_command.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace muster::control {
struct CommandOutline;
struct Fact;
struct Manual;
}  // namespace muster::control

namespace muster::cli {

// Where the commands' options are written, and which command was chosen.
struct Line {
  std::function<int()> command;
  bool json = false;
  std::string endpoint;
  double timeout = 10;
  std::string job;
  std::string file;
  std::vector<std::string> files;
  std::vector<std::string> settings;
  std::string word;
  std::vector<std::string> behind;  // what follows the first "--" of `muster run`
  std::uint32_t rank = 0;
  double seconds = 5;
  bool now = false;
  CertsQuestion certs;
  CheckpointQuestion checkpoint;
  FlightPaths flight;
  TopOptions top;
  MeshQuestion mesh;
  PlanQuestion plan;
  HaloQuestion halo;
  RunPlan::Options run;
  double grace = 10;
  bool asks_daemon = false;
  bool keep = false, only_private = false, no_prefix = false;

  Output output() const { return json ? Output::kJson : Output::kText; }
  DaemonAddress address() const;
  // Asks a daemon: the one that is named, else that of the machine, else that of a private run.
  int of_daemon(const std::function<int(const DaemonAddress&)>& question) const;
  // As above, about the named job, or about the only one.
  int of_job(const std::function<int(const DaemonAddress&, const std::string& job)>& question) const;
  RunPlan::Home home() const;
  // Why a command that asks a daemon cannot run: MUSTER_ENDPOINT is set to nothing.
  std::optional<Trouble> fault() const;
};

// Declares every command with its options and sentences. The app writes to `line`, which must outlive it.
void declare(CLI::App& app, Line& line);
// The commands as data, and the further text of help and manual page.
control::CommandOutline command_outline();
const control::Manual& command_manual();
// At least one of each command.
const std::vector<control::Fact>& command_examples();

}  // namespace muster::cli
