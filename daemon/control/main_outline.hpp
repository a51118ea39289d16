// Outline: the commands and options of a program as plain data, read from what it is parsed with.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace muster::control {

// The group of options that programs give each other: help, manual page and completion leave them out.
inline constexpr const char* kHidden = "";

struct OptionOutline {
  std::vector<std::string> names;  // "-n", "--ranks"; of a positional its one name
  std::string value;               // "FILE"; empty: a flag
  std::string sentence;
  std::string fallback;  // the default; may be empty
  bool positional = false;
  bool repeated = false;
  bool required = false;
};

struct CommandOutline {
  std::string name;
  std::string path;  // "muster config explain"
  std::string sentence;
  std::string footer;
  bool takes_program = false;  // what follows is a program and its arguments
  std::vector<OptionOutline> options;
  std::vector<CommandOutline> commands;
};

// Of a program that has been declared: whatever is parsed, all that could be, but what is hidden.
CommandOutline outline(const CLI::App& app);

}  // namespace muster::control
