// The flags of musterd.
#pragma once

#include "daemon/supervisor/startup.hpp"

#include <optional>
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
  std::string program;                 // this one's path, whatever becomes of the file
  std::vector<std::string> arguments;  // all of them, the program's name first
  int check_state = -1;                // a state file, to say whether this program reads it
  std::string check_nonce;             // begins the answer
  std::string check_socket;            // the path of the socket that would come along; empty: the manager's
  bool check_config = false;
  bool print_config = false;
  bool transient = false;  // removes its runtime directory at the end
};

// Or the exit code: 0 after --help and --version, 2 for a mistake, 1 where the engine's program cannot be
// run; both have been told.
struct ParsedFlags {
  std::optional<Flags> flags;
  int exit_code = 0;
};
ParsedFlags parse_flags(int argc, char** argv);

// What the flags write to as they are typed.
struct Typed {
  Flags flags;
  std::string config;
  std::string socket;
  std::vector<std::string> settings;
};

// Every flag with its sentence: the manual page and the completion are written from them too.
void declare(CLI::App& app, Typed& typed);
// The same as data, and what help and manual page say besides.
control::CommandOutline flag_outline();
const control::Manual& daemon_manual();

}  // namespace muster::supervisor
