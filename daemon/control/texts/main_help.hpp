// The form of --help: 80 columns, and the examples of each command below it.
#pragma once

#include "daemon/control/texts/main_manual.hpp"

#include <vector>

namespace CLI {
class App;
}

namespace muster::control {

// For a program with all its commands, once these are declared. A command has those examples that begin with
// its own words; the program's are in its footer.
void format_help(CLI::App& app, const std::vector<Fact>& examples);

}  // namespace muster::control
