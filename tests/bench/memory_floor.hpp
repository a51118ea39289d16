// MemoryFloor: how fast this machine could be at best. Bytes that an operation must read and write, over the
// copy bandwidth of all its cores on buffers of that size, and one exchange of a cache line to meet.
#pragma once

#include "tests/bench/row.hpp"

#include <cstddef>
#include <map>
#include <string>

namespace muster::bench {

// Owns    what it has measured so far.
// Thread  one; it starts others to measure.
// Bound   one figure for each size asked for.
// Fails   never; a figure of a busy machine is too slow, so the best of several looks is kept.
class MemoryFloor {
 public:
  explicit MemoryFloor(int cores) : cores_(cores) {}

  // The row of a collective's floor.
  Row of(const std::string& operation, std::size_t bytes, int ranks);
  // Bytes read and written per second when all cores copy between two buffers of `bytes`.
  double bandwidth(std::size_t bytes);
  // From a store by one core to its sight on another.
  double meeting_seconds();

 private:
  int cores_;
  std::map<std::size_t, double> bandwidth_;
  double meeting_ = 0.0;
};

// What all ranks together must read and write, every source once and every result once.
std::size_t bytes_moved(const std::string& operation, std::size_t bytes, int ranks);

}  // namespace muster::bench
