// What there is to write about a program.
#pragma once

#include "daemon/cli/manual.hpp"
#include "daemon/cli/outline.hpp"

#include <string>

namespace muster::pages {

using cli::Command;
using cli::Option;

struct Program {
  Command command;
  cli::Manual manual;
  std::string version;
};

Program muster_program();
Program musterd_program();

}  // namespace muster::pages
