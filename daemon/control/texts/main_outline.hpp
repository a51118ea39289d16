// Outline: the commands and options of a program as plain data, read from its parser.
#pragma once

#include "daemon/control/texts/main_manual.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace muster::control {

// The group of options that only programs use: help, manual page and completion leave them out.
inline constexpr const char* kHidden = "";

struct CommandOutline {
  struct Option {
    std::vector<std::string> names;  // "-n", "--ranks"; a positional has one name
    std::string value;               // "FILE"; empty: a flag
    std::string sentence;
    std::string fallback;  // the default; may be empty
    bool positional = false;
    bool repeated = false;
    bool required = false;
  };
  std::string name;
  std::string path;  // "muster config explain"
  std::string sentence;
  std::string footer;
  std::vector<Fact> examples;
  bool takes_program = false;  // a program and its arguments follow
  std::vector<Option> options;
  std::vector<CommandOutline> commands;
};

// All commands and options that the parser declares, except hidden ones.
CommandOutline outline(const CLI::App& app);
// Gives each command that has no others the examples that begin with its words.
void add_examples(const std::vector<Fact>& examples, CommandOutline& outline);

}  // namespace muster::control
