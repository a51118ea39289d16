// The seeds with which a suite runs through faults.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace muster::test {

// `first` alone; with MUSTER_FAULT_SEEDS=N, N seeds from it on.
inline std::vector<std::uint64_t> fault_seeds(std::uint64_t first) {
  const char* said = std::getenv("MUSTER_FAULT_SEEDS");
  std::vector<std::uint64_t> seeds(said == nullptr ? 1 : std::stoull(said));
  for (std::uint64_t& seed : seeds) seed = first++;
  return seeds;
}

}  // namespace muster::test
