// Rings: each node sends to the next and receives from the one before, nodes - 1 times. No byte more than
// needed, and one flow into each node at a time. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", JPDC 69(2), 2009.
#include "api/base/nodes/schedule.hpp"

namespace muster::transport::span {

// In round s the partial result of slice here - 1 - s goes on; after the last one a node has slice `here`.
Schedule ring_reduce_scatter(std::uint32_t nodes, std::uint32_t here) {
  Schedule schedule;
  const std::uint32_t next = (here + 1) % nodes;
  const std::uint32_t before = (here + nodes - 1) % nodes;
  for (std::uint32_t s = 0; s + 1 < nodes; ++s) {
    const std::uint32_t out = (here + 2 * nodes - 1 - s) % nodes;
    const std::uint32_t in = (out + nodes - 1) % nodes;
    schedule.push_back({{{next, out, out + 1, false}}, {{before, in, in + 1, false}}});
  }
  return schedule;
}

Schedule ring_all_gather(std::uint32_t nodes, std::uint32_t here) {
  Schedule schedule;
  const std::uint32_t next = (here + 1) % nodes;
  const std::uint32_t before = (here + nodes - 1) % nodes;
  for (std::uint32_t s = 0; s + 1 < nodes; ++s) {
    const std::uint32_t out = (here + nodes - s) % nodes;
    const std::uint32_t in = (before + nodes - s) % nodes;
    schedule.push_back({{{next, out, out + 1, true}}, {{before, in, in + 1, true}}});
  }
  return schedule;
}

}  // namespace muster::transport::span
