// core(): a set of one core, for the tests of sets of cores.
#pragma once

#include "daemon/engine/memory/core_set.hpp"

#include <cstddef>

namespace muster::engine {

inline CoreSet core(std::size_t number) {
  CoreSet set{{}};
  set.words.resize(number / 64 + 1);
  set.words.back() = 1UL << number % 64;
  return set;
}

}  // namespace muster::engine
