// Completion for shells: commands, options, and the values that are known beforehand; jobs are asked for.
#pragma once

#include "deploy/pages/program.hpp"

#include <string>
#include <vector>

namespace muster::pages {

// Each for all programs together. The file begins to work where a shell finds it under a program's name.
std::string bash_completion(const std::vector<Command>& programs);
std::string zsh_completion(const std::vector<Command>& programs);
std::string fish_completion(const std::vector<Command>& programs);

}  // namespace muster::pages
