// RowPlan: how nodes carry out one collective whose counts all members agree on: the row, its chunks, and the
// schedule of each chunk. It depends on the collective and the group alone, not on a launch.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/nodes/row.hpp"
#include "api/base/nodes/schedule.hpp"
#include "api/base/nodes/span.hpp"
#include "transport/span/chunk_room.hpp"
#include "transport/span/spanning_options.hpp"
#include "transport/span/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::transport::span {

struct RowPlan {
  // `direct_from`: rows of so many bytes may travel from and to members.
  RowPlan(const Collective& collective, const Span& span, const SpanningOptions& options,
          std::size_t direct_from);

  // Chunk `index`, which is the first one or goes into `room`.
  const NodeRow::Chunk& chunk(std::uint32_t index, NodeRow::Chunk& room) const {
    if (index == 0) return first_chunk;
    row.cut(index, chunks, room);
    return room;
  }
  // The rows that a node's contribution has.
  std::uint32_t rows_of(std::uint32_t node) const { return unfolded ? member_count[node] : 1; }
  // Whether this node contributes to a slice; whether a member of it gets the slice's result.
  bool gives(std::uint32_t slice) const;
  bool needs(std::uint32_t slice) const;
  // The message travels with the node's match request.
  bool goes_inline(std::uint64_t round, std::size_t bytes) const {
    return chunks == 1 && !is_large && round == 0 && bytes <= kInlineBytes;
  }
  MessageTag number_of(std::uint32_t of_chunk, std::uint64_t round) const {
    return std::uint64_t{of_chunk} * schedule.size() + round;
  }
  std::uint64_t messages() const { return std::uint64_t{chunks} * schedule.size(); }
  std::uint64_t bytes() const;  // of its lists, about
  std::size_t bytes_of(const NodeRow::Chunk& of_chunk, const Round::Move& move, std::uint32_t rows) const {
    const auto& at = of_chunk.at;
    return static_cast<std::size_t>(at[move.last] - at[move.first]) * element * (move.result ? 1 : rows);
  }

  NodeRow row;
  muster_op op;
  std::uint32_t here;                       // this node
  std::size_t element;                      // its bytes; 1 for a barrier
  bool folds;                               // it is a reduction
  bool unfolded = false;                    // contributions of a node travel apart
  bool is_large = false;                    // messages may go from and to members
  std::uint32_t root = 0;                   // the root's node
  std::vector<std::uint32_t> member_count;  // by node
  std::vector<std::uint32_t> ordinal;       // by member: among those of its node
  std::size_t chunk_bytes = kChunkBytes;    // messages of operations that move whole chunks: half of it
  std::uint32_t chunks = 0;
  NodeRow::Chunk first_chunk;
  Schedule schedule;
  std::vector<bool> lands;  // by slice: a message brings it
};

}  // namespace muster::transport::span
