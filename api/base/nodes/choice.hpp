// Which algorithm nodes use for an operation: the one with the least estimate. A pure function of what all
// nodes know, so that all choose the same.
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

// What node `here` does. `root`: the root's node.
Schedule schedule_of(muster_op op, NodeAlgorithm algorithm, std::uint32_t nodes, std::uint32_t here,
                     std::uint32_t root);
// Whether messages are as long as a chunk, and not as its slices. The same on all nodes.
bool moves_whole(muster_op op, NodeAlgorithm algorithm) noexcept;
// What a schedule takes, by the chunk's slices. `rows`: contributions of each node that travel unfolded.
double estimate(const Schedule& schedule, const RowChunk& chunk, std::uint32_t rows,
                std::size_t element_bytes, const LinkCosts& costs);
// What a node sends by a schedule, in bytes.
std::uint64_t bytes_sent(const Schedule& schedule, const RowChunk& chunk, std::uint32_t rows,
                         std::size_t element_bytes);
// Whether the members of a node are combined before nodes are: if that changes no bit of the kind of result
// that is promised.
bool combines(const Collective& collective, bool reproducible);
// `rows`: as above, the most of any node; 0: contributions are combined, and may be folded on their way.
NodeAlgorithm choose_algorithm(muster_op op, const RowChunk& chunk, std::uint32_t rows,
                               std::size_t element_bytes, std::uint32_t root, const LinkCosts& costs);

}  // namespace muster::transport::span
