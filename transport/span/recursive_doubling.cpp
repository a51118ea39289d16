// Recursive doubling: nodes exchange all that they have with a partner at distance 1, 2, 4, … So there are
// few rounds, each with the whole row: for short rows and many nodes. Where their number is no power of two,
// the surplus nodes hand theirs to a partner first, and get the result last. Thakur, Rabenseifner and Gropp,
// 2005, section 4.5.
#include "transport/span/schedule.hpp"

#include <bit>

namespace muster::transport::span {

// Both of a pair fold the same two values, so all nodes get the same bits.
Schedule recursive_doubling(std::uint32_t nodes, std::uint32_t here) {
  const std::uint32_t core = std::bit_floor(nodes);
  const bool surplus = here >= core;
  const bool has_surplus = here + core < nodes;
  Schedule schedule;
  if (nodes > core) {
    Round& fold_in = schedule.emplace_back();
    if (surplus) fold_in.sends.push_back({here - core, 0, nodes, false});
    if (has_surplus) fold_in.receives.push_back({here + core, 0, nodes, false});
  }
  for (std::uint32_t distance = 1; distance < core; distance *= 2) {
    Round& round = schedule.emplace_back();
    if (surplus) continue;
    round.sends.push_back({here ^ distance, 0, nodes, false});
    round.receives.push_back({here ^ distance, 0, nodes, false});
  }
  if (nodes > core) {
    Round& hand_out = schedule.emplace_back();
    if (surplus) hand_out.receives.push_back({here - core, 0, nodes, true});
    if (has_surplus) hand_out.sends.push_back({here + core, 0, nodes, true});
  }
  return schedule;
}

}  // namespace muster::transport::span
