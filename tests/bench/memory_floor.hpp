// MemoryFloor: how fast this machine could be at best. Bytes that an operation must read and write, over the
// copy bandwidth of all its cores on buffers of that size, and the cheapest way to meet.
#pragma once

#include "tests/bench/meeting.hpp"
#include "tests/bench/operation.hpp"

#include <cstddef>
#include <map>

namespace muster::bench {

// Owns    what it has measured so far.
// Thread  one; it starts others, and processes, to measure.
// Bound   one figure for each size asked for.
// Fails   never; a figure of a busy machine is too slow, so the best of several looks is kept.
class MemoryFloor {
 public:
  double microseconds(Operation operation, std::size_t bytes, int ranks);
  // Bytes read and written per second when all cores copy between two buffers of `bytes`.
  double bandwidth(std::size_t bytes);
  Meeting& meeting() { return meeting_; }

 private:
  Meeting meeting_;
  std::map<std::size_t, double> bandwidth_;
};

}  // namespace muster::bench
