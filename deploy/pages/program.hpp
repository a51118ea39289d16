// A program, as its manual page and its completions describe it.
#pragma once

#include "daemon/control/texts/main_manual.hpp"
#include "daemon/control/texts/main_outline.hpp"

#include <string>

namespace muster::pages {

using Command = control::CommandOutline;
using Option = control::CommandOutline::Option;

struct Program {
  Command command;
  control::Manual manual;
  std::string version;
};

Program muster_program();
Program musterd_program();

}  // namespace muster::pages
