// How long the fault tests go on: seconds, unless somebody has more time.
#pragma once

#include <cstdlib>
#include <string>

namespace muster::test {

// `usual` rounds, times MUSTER_FAULT_FACTOR where that is set.
inline int rounds(int usual) {
  const char* factor = std::getenv("MUSTER_FAULT_FACTOR");
  return factor != nullptr ? usual * std::stoi(factor) : usual;
}

}  // namespace muster::test
