// Binomial trees: with each round twice as many nodes have the row. For short rows and many nodes, where the
// root would have to send too many messages itself. Thakur, Rabenseifner and Gropp, 2005, sections 4.2, 4.6.
#include "api/base/nodes/schedule.hpp"

#include <algorithm>

namespace muster::transport::span {

// Counted from the root, node r gets the row in the round of its highest bit, from r without that bit.
Schedule binomial_broadcast(std::uint32_t nodes, std::uint32_t here, std::uint32_t root) {
  const std::uint32_t self = (here + nodes - root) % nodes;
  Schedule schedule;
  for (std::uint32_t distance = 1; distance < nodes; distance *= 2) {
    Round& round = schedule.emplace_back();
    if (self < distance && self + distance < nodes)
      round.sends.push_back({(self + distance + root) % nodes, 0, nodes, true});
    if (self >= distance && self < 2 * distance)
      round.receives.push_back({(self - distance + root) % nodes, 0, nodes, true});
  }
  return schedule;
}

// The same tree, from its leaves to the root.
Schedule binomial_reduce(std::uint32_t nodes, std::uint32_t here, std::uint32_t root) {
  Schedule schedule = binomial_broadcast(nodes, here, root);
  std::reverse(schedule.begin(), schedule.end());
  for (Round& round : schedule) {
    std::swap(round.sends, round.receives);
    for (Round::Move& move : round.sends) move.result = false;
    for (Round::Move& move : round.receives) move.result = false;
  }
  return schedule;
}

}  // namespace muster::transport::span
