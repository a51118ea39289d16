// Explains what is wrong with a command line.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace muster::control {

// CLI11's words if they are plain, else ours: the first unknown option or command, with its likely meaning,
// or an option that was given more than once; and that `path --help` tells more.
std::string wrong_usage(const CLI::App& command, const CLI::ParseError& error, const std::string& path);

}  // namespace muster::control
