// The seeds with which a suite runs through faults.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace muster::test {

// `first` alone; with MUSTER_FAULT_SEEDS=N, N seeds from it on; with M+N, the N seeds behind M others.
inline std::vector<std::uint64_t> fault_seeds(std::uint64_t first) {
  const char* set = std::getenv("MUSTER_FAULT_SEEDS");
  std::string said = set == nullptr ? "1" : set;
  if (const auto plus = said.find('+'); plus != std::string::npos) {
    first += std::stoull(said);
    said.erase(0, plus + 1);
  }
  std::vector<std::uint64_t> seeds(std::stoull(said));
  for (std::uint64_t& seed : seeds) seed = first++;
  return seeds;
}

}  // namespace muster::test
