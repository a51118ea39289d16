// The flags of musterd.
#pragma once

#include "daemon/supervisor/program/startup.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}
namespace muster::control {
struct CommandOutline;
struct Manual;
}  // namespace muster::control

namespace muster::supervisor {

struct Flags {
  Sources sources;
  std::string engine_program;
  std::string program;                 // this program's path, even if its file is replaced
  std::vector<std::string> arguments;  // all of them, the program's name first
  int check_state = -1;                // a state file: says whether this program can read it
  std::string check_nonce;             // begins the answer
  std::string check_directory;         // the runtime directory that comes along
  bool check_config = false;
  bool print_config = false;
  bool transient = false;  // removes its runtime directory at the end
};

// The flags, or the exit code: 0 after --help and --version, 2 for a mistake, 1 if the engine's program
// cannot be run. The reason is then printed already.
tl::expected<Flags, int> parse_flags(int argc, char** argv);

// Where the flags write what was typed.
struct Typed {
  Flags flags;
  std::string config;
  std::string directory;
  std::string socket;
  std::vector<std::string> settings;
};

// Declares every flag with its sentence; manual page and completion are made from it too.
void declare(CLI::App& app, Typed& typed);
// The flags as data, and what help and manual page say besides.
control::CommandOutline flag_outline();
const control::Manual& daemon_manual();

}  // namespace muster::supervisor
