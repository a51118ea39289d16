#include "api/base/nodes/choice.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace muster::transport::span {
namespace {

using enum NodeAlgorithm;

// The algorithms that there are for an operation.
std::span<const NodeAlgorithm> algorithms_of(muster_op op, std::uint32_t rows) {
  static constexpr std::array kReducesAll{kGatherAndFold, kDirect, kRecursiveDoubling, kRabenseifner, kRing};
  static constexpr std::array kByBlocks{kDirect, kRing};
  static constexpr std::array kByRoot{kDirect, kBinomial};
  static constexpr std::array kUnfolded{kGatherAndFold, kDirect};
  switch (op) {
    case MUSTER_ALL_REDUCE:
      return rows > 0 ? std::span<const NodeAlgorithm>(kUnfolded) : kReducesAll;
    case MUSTER_ALL_GATHER:
      return kByBlocks;
    case MUSTER_REDUCE_SCATTER:
      return std::span<const NodeAlgorithm>(kByBlocks).first(rows > 0 ? 1 : 2);
    case MUSTER_REDUCE:
      return std::span<const NodeAlgorithm>(kByRoot).first(rows > 0 ? 1 : 2);
    default:
      return kByRoot;
  }
}

}  // namespace

const char* name_of(NodeAlgorithm algorithm) noexcept {
  constexpr const char* kNames[] = {"direct",       "gather and fold", "ring", "recursive doubling",
                                    "rabenseifner", "binomial"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

Schedule schedule_of(muster_op op, NodeAlgorithm algorithm, std::uint32_t nodes, std::uint32_t here,
                     std::uint32_t root) {
  switch (op) {
    case MUSTER_ALL_REDUCE:
      if (algorithm == kGatherAndFold) return gather_and_fold(nodes, here);
      if (algorithm == kRecursiveDoubling) return recursive_doubling(nodes, here);
      if (algorithm == kRabenseifner) return rabenseifner(nodes, here);
      if (algorithm == kRing) return then(ring_reduce_scatter(nodes, here), ring_all_gather(nodes, here));
      return then(pairwise_reduce_scatter(nodes, here), pairwise_all_gather(nodes, here));
    case MUSTER_ALL_GATHER:
      return algorithm == kRing ? ring_all_gather(nodes, here) : pairwise_all_gather(nodes, here);
    case MUSTER_REDUCE_SCATTER:
      return algorithm == kRing ? ring_reduce_scatter(nodes, here) : pairwise_reduce_scatter(nodes, here);
    case MUSTER_REDUCE:
      return algorithm == kBinomial ? binomial_reduce(nodes, here, root) : linear_reduce(nodes, here, root);
    default:
      return algorithm == kBinomial ? binomial_broadcast(nodes, here, root)
                                    : linear_broadcast(nodes, here, root);
  }
}

bool moves_whole(muster_op op, NodeAlgorithm algorithm) noexcept {
  return has_root(op) || algorithm == NodeAlgorithm::kGatherAndFold ||
         algorithm == NodeAlgorithm::kRecursiveDoubling;
}

double estimate(const Schedule& schedule, const NodeRow::Chunk& chunk, std::uint32_t rows,
                std::size_t element_bytes, const LinkCosts& costs) {
  double total = 0;
  for (const Round& round : schedule) {
    const auto bytes = [&](const std::vector<Round::Move>& moves) {
      double sum = 0;
      for (const Round::Move& move : moves)
        sum += static_cast<double>(chunk.at[move.last] - chunk.at[move.first]) *
               static_cast<double>(element_bytes) * (move.result ? 1 : rows);
      return sum;
    };
    const auto messages = static_cast<double>(round.sends.size() + round.receives.size());
    if (messages == 0) continue;
    total += costs.trip_ns + costs.message_ns * messages +
             std::max(bytes(round.sends), bytes(round.receives)) * 1000 / costs.bytes_per_us;
  }
  return total;
}

std::uint64_t bytes_sent(const Schedule& schedule, const NodeRow::Chunk& chunk, std::uint32_t rows,
                         std::size_t element_bytes) {
  std::uint64_t bytes = 0;
  for (const Round& round : schedule)
    for (const Round::Move& move : round.sends)
      bytes += (chunk.at[move.last] - chunk.at[move.first]) * element_bytes * (move.result ? 1 : rows);
  return bytes;
}

bool combines(const Collective& c, bool reproducible) {
  if (!has_reduction(c.op) || reproducible) return false;
  if (is_integer(c.dtype)) return c.redop != MUSTER_AVG;
  return c.dtype == MUSTER_F32 || c.dtype == MUSTER_F64;
}

NodeAlgorithm choose_algorithm(muster_op op, const NodeRow::Chunk& chunk, std::uint32_t rows,
                               std::size_t element_bytes, std::uint32_t root, const LinkCosts& costs) {
  const auto nodes = static_cast<std::uint32_t>(chunk.slices.size());
  NodeAlgorithm best = kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (const NodeAlgorithm algorithm : algorithms_of(op, rows)) {
    // The root's part of a tree is the longest; elsewhere the nodes are alike.
    const Schedule schedule = schedule_of(op, algorithm, nodes, root, root);
    const double cost = estimate(schedule, chunk, std::max(rows, 1u), element_bytes, costs);
    if (cost >= least) continue;
    least = cost;
    best = algorithm;
  }
  return best;
}

}  // namespace muster::transport::span
