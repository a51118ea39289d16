// Manual pages in the man(7) macros, which groff and mandoc read.
#pragma once

#include "deploy/pages/program.hpp"

#include <string>
#include <string_view>

namespace muster::pages {

// The text as it is to be read, whatever roff would make of it.
std::string roff(std::string_view text);

std::string program_page(const Program& program, int section);
// musterd.yaml(5), with the keys of the cluster file behind those of the settings.
std::string settings_page(const std::string& version);

}  // namespace muster::pages
