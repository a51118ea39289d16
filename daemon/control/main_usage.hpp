// What is wrong with a command line, in words.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace muster::control {

// CLI11's words where they are plain, ours where they are not: the first option or command that is unknown,
// with what it was probably meant to be, and which option was given more than once.
std::string wrong_usage(const CLI::App& command, const CLI::ParseError& error);

}  // namespace muster::control
