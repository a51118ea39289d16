// The algorithm that nodes use for an operation: the one with the least estimate. A pure function of facts
// that all nodes know, so all choose the same.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/nodes/link_costs.hpp"
#include "api/base/nodes/row.hpp"
#include "api/base/nodes/schedule.hpp"
#include "api/base/nodes/span.hpp"

#include <cstdint>
#include <span>

namespace muster::transport::span {

enum class NodeAlgorithm : std::uint8_t {
  kDirect,         // one round, a message for each peer; of an all-reduce two rounds
  kGatherAndFold,  // of an all-reduce: one round, all contributions everywhere
  kRing,
  kRecursiveDoubling,
  kRabenseifner,
  kBinomial,
};
const char* name_of(NodeAlgorithm algorithm) noexcept;  // "direct"

// The rounds of node `here`. `root`: the root's node.
Schedule schedule_of(muster_op op, NodeAlgorithm algorithm, std::uint32_t nodes, std::uint32_t here,
                     std::uint32_t root);
// Whether messages are as long as a chunk, and not as its slices; the same on all nodes.
bool moves_whole(muster_op op, NodeAlgorithm algorithm) noexcept;
// The time of a schedule, by the chunk's slices. `rows`: contributions of each node that travel unfolded.
double estimate(const Schedule& schedule, const NodeRow::Chunk& chunk, std::uint32_t rows,
                std::size_t element_bytes, const LinkCosts& costs);
// The bytes that a node sends in a schedule.
std::uint64_t bytes_sent(const Schedule& schedule, const NodeRow::Chunk& chunk, std::uint32_t rows,
                         std::size_t element_bytes);
// Whether a node combines its members' contributions before nodes combine theirs: only if that changes no bit
// of the promised result.
bool combines(const Collective& collective, bool reproducible);
// `rows`: as above, the most of any node; 0: contributions are combined, and may be folded on their way.
NodeAlgorithm choose_algorithm(muster_op op, const NodeRow::Chunk& chunk, std::uint32_t rows,
                               std::size_t element_bytes, std::uint32_t root, const LinkCosts& costs);

}  // namespace muster::transport::span
