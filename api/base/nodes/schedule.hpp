// Schedule: which parts of a row a node sends, receives and folds, round by round. Schedules are pure lists
// of moves: no memory, no network. Each algorithm is one file, which names its source.
//
// A row has a slice for each node; a move names consecutive slices. A node begins with a contribution to each
// slice that it gives, and ends with the result of each slice that it needs.
//   send     of the node's own contribution, or of its result so far
//   receive  a peer's contribution, to be folded; or a result, as it is
// Within a round all moves run at once. Then what was received to be folded is folded with the node's own
// contribution to those slices, in the order of nodes. All such receives of a round name the same slices.
// Between two nodes there is at most one message in each direction in a round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster::transport::span {

struct Round {
  struct Move {
    std::uint32_t peer = 0;  // index of the node in the group's span
    std::uint32_t first = 0, last = 0;
    bool result = false;
  };

  std::vector<Move> sends;
  std::vector<Move> receives;
};

using Schedule = std::vector<Round>;

// `nodes` ≥ 2 nodes; of node `here`.

// direct.cpp: every node speaks to every other that it has something for.
Schedule gather_and_fold(std::uint32_t nodes, std::uint32_t here);  // all reduce, in one round
Schedule pairwise_reduce_scatter(std::uint32_t nodes, std::uint32_t here);
Schedule pairwise_all_gather(std::uint32_t nodes, std::uint32_t here);
Schedule linear_reduce(std::uint32_t nodes, std::uint32_t here, std::uint32_t root);
Schedule linear_broadcast(std::uint32_t nodes, std::uint32_t here, std::uint32_t root);
// ring.cpp
Schedule ring_reduce_scatter(std::uint32_t nodes, std::uint32_t here);
Schedule ring_all_gather(std::uint32_t nodes, std::uint32_t here);
// recursive_doubling.cpp
Schedule recursive_doubling(std::uint32_t nodes, std::uint32_t here);
// rabenseifner.cpp: a reduce-scatter by halving, and an all-gather by doubling
Schedule rabenseifner(std::uint32_t nodes, std::uint32_t here);
// binomial.cpp
Schedule binomial_reduce(std::uint32_t nodes, std::uint32_t here, std::uint32_t root);
Schedule binomial_broadcast(std::uint32_t nodes, std::uint32_t here, std::uint32_t root);

// A schedule of the nodes below a power of two, for all: the surplus nodes hand theirs to a partner first,
// and get the result last. They take no part in `core`.
Schedule with_surplus(std::uint32_t nodes, std::uint32_t here, Schedule core);
// One after the other.
Schedule then(Schedule first, Schedule second);

}  // namespace muster::transport::span
