// The switch of the mutants. Only the copy of the tree in which mutants are planted includes it.
#pragma once

#include <cstdlib>
#include <cstring>

namespace muster::mutants {

// Whether MUSTER_MUTANT names this one. Programs that a test starts inherit the variable.
inline bool is_chosen(const char* name) {
  const char* chosen = std::getenv("MUSTER_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

}  // namespace muster::mutants

// The same, looked up once at each place: places may lie in loops.
#define MUSTER_MUTANT(name)                                      \
  ([] {                                                          \
    static const bool on = ::muster::mutants::is_chosen(name); \
    return on;                                                   \
  }())
