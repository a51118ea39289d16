// Collective: what the members of a group agree on, and Share: one member's own half of it. Pure values that
// the client, the engine and the transports understand alike.
#pragma once

#include "api/base/operations.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

// Elements [offset, offset + count) of a vector. An empty block lies nowhere: its offset means nothing.
struct Block {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

// What all members agree on.
struct Collective {
  muster_op op = 0;
  muster_dtype dtype = 0;  // EXCHANGE, whose faces have dtypes of their own: U8
  muster_redop redop = 0;
  std::int32_t root = 0;      // BROADCAST, REDUCE, GATHER, SCATTER; SEND and RECV: index of the sender
  std::int32_t receiver = 0;  // SEND and RECV only
  std::uint32_t tag = 0;      // SEND and RECV only
  // Elements: of the vector (ALL_REDUCE, BROADCAST, REDUCE, SEND, RECV), or of every block where `counts` is
  // empty (ALL_GATHER, REDUCE_SCATTER). 0 in the operations that agree pair by pair: there each Share has its
  // own.
  std::uint64_t count = 0;
  std::vector<std::uint64_t> counts;  // ALL_GATHER, REDUCE_SCATTER: one per member, or empty for even blocks
  double scale = 1.0;                 // PREMUL_SUM
  // The one result of all, in node-shared memory, and at which byte of it. 0: each member has its own target.
  std::uint64_t shared_memory = 0;
  std::uint64_t shared_offset = 0;
};

// A strided view of elements, outermost dim first, strides in elements: one edge of an EXCHANGE as one end
// sees it.
struct Face {
  muster_dtype dtype = 0;
  std::int32_t peer = 0;
  std::uint32_t tag = 0;
  std::int32_t dims = 0;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size{};
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> stride{};
  std::byte* data = nullptr;

  std::uint64_t count() const noexcept;  // elements; 1 for dims 0
  std::size_t element_bytes() const noexcept;
  std::uint64_t bytes() const noexcept;
};

// One member's own half. Blocks are parts of the vectors that `source` and `target` begin.
//
//   source   one block: what this member gives (ALL_REDUCE, ALL_GATHER, BROADCAST at the root, REDUCE,
//            GATHER, SEND); one for each member: REDUCE_SCATTER, SCATTER at the root, ALL_TO_ALL; none: the
//            rest
//   target   one block: what it gets (ALL_REDUCE, REDUCE_SCATTER, BROADCAST, REDUCE at the root, SCATTER,
//            RECV); one for each member: ALL_GATHER, GATHER at the root, ALL_TO_ALL; none: the rest. The root
//            of a BROADCAST may leave `target` null.
struct Share {
  std::int32_t index = 0;  // in the group
  std::vector<Block> source_blocks;
  std::vector<Block> target_blocks;
  std::vector<Face> sends;  // EXCHANGE only
  std::vector<Face> receives;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

const char* redop_name(muster_redop op) noexcept;  // "sum"

// A member's own half as its caller says it: counts and offsets, or empty for the default of muster_blocks.
struct ShareCounts {
  std::uint64_t count = 0;
  std::span<const std::uint64_t> source_counts{}, source_offsets{};
  std::span<const std::uint64_t> target_counts{}, target_offsets{};
};

// What all members agree on, as member `index` says it: of `said` only op, dtype, redop, peer, tag and scale
// are looked at. What the operation does not use is dropped, so that it cannot differ; equal counts are even
// blocks. kBadArgument naming field and value: a peer that is none, and what validate() refuses.
Result<Collective> make_collective(const muster_collective& said, std::int32_t index, std::int32_t ranks,
                                   const ShareCounts& counts);

// The blocks of member `index`. kBadArgument naming field and value: lists that are not one per member or
// that the operation does not have, sums and offsets beyond 2^63 bytes, overlapping blocks of a target.
// Counts on which all agree are those of `collective`; a root's own block of GATHER and SCATTER has the count
// that its list says. Memory and faces are left for the caller to fill in.
Result<Share> make_share(const Collective& collective, std::int32_t index, std::int32_t ranks,
                         const ShareCounts& counts);

// Elements from the start of a vector to the end of its last block.
std::uint64_t extent_of(std::span<const Block> blocks) noexcept;
// Elements in all blocks.
std::uint64_t count_of(std::span<const Block> blocks) noexcept;
// What the member gives to and gets from the whole operation, in elements of the dtype; of an EXCHANGE bytes.
std::uint64_t given_count(const Share& share) noexcept;
std::uint64_t got_count(const Share& share) noexcept;

// kBadArgument naming field and value: op, dtype, redop, root, receiver, counts.size(), overflow, a scale of
// an integer that is not whole. Pure.
Status validate(const Collective& collective, std::int32_t ranks);

// The member gives what all get, and may name no target for a copy of its own: the root of a BROADCAST.
constexpr bool may_lack_target(const Collective& collective, std::int32_t index) noexcept {
  return row_of(collective.op).gives == Portion::kBlockAtRoot && row_of(collective.op).same_for_all &&
         index == collective.root;
}

// kBadArgument if the member lacks memory that it reads or writes, if what it writes overlaps itself, or
// overlaps what it reads otherwise than in place as muster_collective says (the source of an ALL_REDUCE not
// at all where the target is shared); of faces also peers, dims, sizes, strides, and a tag that stands twice
// for one peer. Pure: pointers are compared, not followed. O(n log n), for faces whose address ranges
// interleave by pair.
Status check_share(const Collective& collective, const Share& share, std::int32_t ranks);

}  // namespace muster
