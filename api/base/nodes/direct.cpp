// Direct exchange: each node sends to each other at once what that one needs. One round, and no byte more
// than needed; but a message for each peer, which costs where there are many nodes. Pairwise reduce-scatter
// and all-gather after Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations
// in MPICH", IJHPCA 19(1), 2005, sections 4.1 and 4.4.
#include "api/base/nodes/schedule.hpp"

namespace muster::transport::span {
namespace {

// Peers from the next one on, so that nodes do not all send to the same one first.
template<class Visit>
void for_each_peer(std::uint32_t nodes, std::uint32_t here, Visit visit) {
  for (std::uint32_t step = 1; step < nodes; ++step) visit((here + step) % nodes);
}

}  // namespace

Schedule then(Schedule first, Schedule second) {
  for (Round& round : second) first.push_back(std::move(round));
  return first;
}

Schedule gather_and_fold(std::uint32_t nodes, std::uint32_t here) {
  Round round;
  for_each_peer(nodes, here, [&](std::uint32_t peer) {
    round.sends.push_back({peer, 0, nodes, false});
    round.receives.push_back({peer, 0, nodes, false});
  });
  return {round};
}

Schedule pairwise_reduce_scatter(std::uint32_t nodes, std::uint32_t here) {
  Round round;
  for_each_peer(nodes, here, [&](std::uint32_t peer) {
    round.sends.push_back({peer, peer, peer + 1, false});
    round.receives.push_back({peer, here, here + 1, false});
  });
  return {round};
}

Schedule pairwise_all_gather(std::uint32_t nodes, std::uint32_t here) {
  Round round;
  for_each_peer(nodes, here, [&](std::uint32_t peer) {
    round.sends.push_back({peer, here, here + 1, true});
    round.receives.push_back({peer, peer, peer + 1, true});
  });
  return {round};
}

Schedule linear_reduce(std::uint32_t nodes, std::uint32_t here, std::uint32_t root) {
  Round round;
  if (here != root) round.sends.push_back({root, 0, nodes, false});
  if (here == root)
    for_each_peer(nodes, here, [&](std::uint32_t peer) {
      round.receives.push_back({peer, 0, nodes, false});
    });
  return {round};
}

Schedule linear_broadcast(std::uint32_t nodes, std::uint32_t here, std::uint32_t root) {
  Round round;
  if (here != root) round.receives.push_back({root, 0, nodes, true});
  if (here == root)
    for_each_peer(nodes, here, [&](std::uint32_t peer) { round.sends.push_back({peer, 0, nodes, true}); });
  return {round};
}

}  // namespace muster::transport::span
