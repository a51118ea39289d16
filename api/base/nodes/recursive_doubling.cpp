// Recursive doubling: nodes exchange all that they have with a partner at distance 1, 2, 4, … So there are
// few rounds, each with the whole row: for short rows and many nodes. Where their number is no power of two,
// the surplus nodes hand theirs to a partner first, and get the result last. Thakur, Rabenseifner and Gropp,
// 2005, section 4.5.
#include "api/base/nodes/schedule.hpp"

#include <bit>
#include <utility>

namespace muster::transport::span {

Schedule with_surplus(std::uint32_t nodes, std::uint32_t here, Schedule core) {
  const std::uint32_t below = std::bit_floor(nodes);
  if (nodes == below) return core;
  Round first, last;
  if (here >= below) {
    first.sends.push_back({here - below, 0, nodes, false});
    last.receives.push_back({here - below, 0, nodes, true});
  } else if (here + below < nodes) {
    first.receives.push_back({here + below, 0, nodes, false});
    last.sends.push_back({here + below, 0, nodes, true});
  }
  return then(then({first}, std::move(core)), {last});
}

// Both of a pair fold the same two values, so all nodes get the same bits.
Schedule recursive_doubling(std::uint32_t nodes, std::uint32_t here) {
  const std::uint32_t core = std::bit_floor(nodes);
  Schedule schedule;
  for (std::uint32_t distance = 1; distance < core; distance *= 2) {
    Round& round = schedule.emplace_back();
    if (here >= core) continue;
    round.sends.push_back({here ^ distance, 0, nodes, false});
    round.receives.push_back({here ^ distance, 0, nodes, false});
  }
  return with_surplus(nodes, here, std::move(schedule));
}

}  // namespace muster::transport::span
