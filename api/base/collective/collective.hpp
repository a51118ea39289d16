// Collective: the values that the members of a group agree on, and Share: one member's own half of it. Pure
// values that the client, the engine and the transports read alike.
#pragma once

#include "api/base/collective/operations.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

// Limit for all blocks of one operation together.
inline constexpr std::size_t kPiecesMax = 4096;

// Elements [offset, offset + count) of a vector. The offset of an empty block means nothing.
struct Block {
  // A part of a block that is one stretch of memory at all members.
  struct Fragment {
    std::uint64_t first = 0;  // element of the block
    std::uint64_t count = 0;
    std::uint64_t cut_offset = 0;  // element of the cut vector: it has a block for each member
    std::size_t piece = 0;         // of the block
  };

  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Block&, const Block&) = default;
};

// The values that all members agree on.
struct Collective {
  muster_op op = 0;
  muster_dtype dtype = 0;  // U8 for EXCHANGE, whose faces have dtypes of their own
  muster_redop redop = 0;
  std::int32_t root = 0;      // BROADCAST, REDUCE, GATHER, SCATTER; SEND and RECV: index of the sender
  std::int32_t receiver = 0;  // SEND and RECV only
  std::uint32_t tag = 0;      // SEND and RECV match by it; others must agree on it
  // Elements of the vector (ALL_REDUCE, BROADCAST, REDUCE, SEND, RECV), or of every block if `counts` is
  // empty (ALL_GATHER, REDUCE_SCATTER). 0 in operations that agree pair by pair: each Share has its counts.
  std::uint64_t count = 0;
  std::vector<std::uint64_t> counts;  // ALL_GATHER, REDUCE_SCATTER: one per member, or empty for even blocks
  // For blocks in pieces of the same operations: block i is the entries [first_piece[i], first_piece[i + 1])
  // of a share's list of blocks, end to end. Empty: block i is entry i.
  std::vector<std::uint32_t> first_piece;
  double scale = 1.0;  // PREMUL_SUM
  // Node-shared memory with one result for all, and its byte offset there. 0: each member has its own target.
  // In a group that spans nodes each node has its own memory, under the same number.
  std::uint64_t shared_memory = 0;
  std::uint64_t shared_offset = 0;
};

// One edge of an EXCHANGE as one end sees it: a strided view, outermost dim first, strides in elements.
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

// The face of a view whose first element is at `data`. A view with dims out of range has no sizes.
Face make_face(const muster_face& said, std::byte* data) noexcept;

// One member's own half. Blocks are parts of the vectors that `source` and `target` begin.
//
//   source   one block: what this member gives (ALL_REDUCE, ALL_GATHER, BROADCAST at the root, REDUCE,
//            GATHER, SEND); one for each member: REDUCE_SCATTER, SCATTER at the root, ALL_TO_ALL; none: the
//            rest
//   target   one block: what it gets (ALL_REDUCE, REDUCE_SCATTER, BROADCAST, REDUCE at the root, SCATTER,
//            RECV); one for each member: ALL_GATHER, GATHER at the root, ALL_TO_ALL; none: the rest. The root
//            of a BROADCAST may leave `target` null.
struct Share {
  // Where a member's two vectors begin in one operation. A start may name others than those of the share.
  struct Bases {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
  };

  // Counts and offsets of a member's own half, from its caller. An empty list: the default of muster_blocks.
  struct Counts {
    std::uint64_t count = 0;
    std::span<const std::uint64_t> source_counts{}, source_offsets{};
    std::span<const std::uint64_t> target_counts{}, target_offsets{};
    std::span<const std::uint32_t> piece_counts{};  // of the side that the operation cuts
    std::span<const muster_piece> pieces{};
    bool in_place = false;  // source and target begin at the same place
  };

  std::int32_t index = 0;            // in the group
  std::vector<Block> source_blocks;  // entries; blocks in pieces have several each
  std::vector<Block> target_blocks;
  std::vector<Face> sends;  // EXCHANGE only
  std::vector<Face> receives;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};
inline Share::Bases bases_of(const Share& share) noexcept {
  return {share.source, share.target};
}

const char* redop_name(muster_redop op) noexcept;  // "sum"

// The values that all members must agree on, from the description of member `index`. It reads only op, dtype,
// redop, peer, tag and scale of `said`. Fields that the operation does not use are dropped, so they cannot
// differ; a list of equal counts becomes even blocks. kBadArgument naming field and value: a peer outside the
// group, and everything that validate() refuses.
Result<Collective> make_collective(const muster_collective& said, std::int32_t index, std::int32_t ranks,
                                   const Share::Counts& counts);

// The blocks of member `index`. kBadArgument naming field and value: a list without one entry per member or
// that the operation does not have, sums and offsets beyond 2^63 bytes, overlapping blocks of a target.
// Agreed counts come from `collective`. The root's own block of GATHER and SCATTER takes its count from the
// root's list. The caller fills in memory and faces.
Result<Share> make_share(const Collective& collective, std::int32_t index, std::int32_t ranks,
                         const Share::Counts& counts);

// The entries of block `block` in the list of a side that the operation cuts.
std::span<const Block> entries_of(const Collective& collective, std::span<const Block> blocks,
                                  std::size_t block) noexcept;

// Calls visit(Fragment) for each fragment of elements [first, last) of a block, whose entries are given.
template<class Visit>
void for_each_fragment(std::span<const Block> entries, std::uint64_t first, std::uint64_t last, Visit visit) {
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < entries.size() && at < last; at += entries[i++].count) {
    const std::uint64_t begin = std::max(first, at);
    const std::uint64_t end = std::min(last, at + entries[i].count);
    if (begin < end) visit(Block::Fragment{begin, end - begin, entries[i].offset + (begin - at), i});
  }
}
// Where a fragment begins in the vector of the side that has the own block alone: end to end, or, in place,
// in the same pieces.
inline std::uint64_t own_offset(std::span<const Block> own, const Block::Fragment& fragment) noexcept {
  return own.size() == 1 ? own.front().offset + fragment.first : fragment.cut_offset;
}

// Elements from the start of a vector to the end of its last block.
std::uint64_t extent_of(std::span<const Block> blocks) noexcept;
// Elements in all blocks.
std::uint64_t count_of(std::span<const Block> blocks) noexcept;
// How much the member gives to and gets from the whole operation: elements of the dtype; EXCHANGE: bytes.
std::uint64_t given_count(const Share& share) noexcept;
std::uint64_t got_count(const Share& share) noexcept;

// kBadArgument naming field and value: op, dtype, redop, root, receiver, counts.size(), overflow, a scale of
// an integer that is not whole. Pure.
Status validate(const Collective& collective, std::int32_t ranks);

// Whether the member may have no target: the root of a BROADCAST has the data already and needs no copy.
constexpr bool may_lack_target(const Collective& collective, std::int32_t index) noexcept {
  return row_of(collective.op).gives == Portion::kBlockAtRoot && row_of(collective.op).same_for_all &&
         index == collective.root;
}

// Whether a share can be carried out. kBadArgument if memory that the member reads or writes is missing, or
// if what it writes overlaps itself or what it reads. Only the places "in place" of muster_collective may
// coincide; if the target is shared, the source of an ALL_REDUCE may not. Checks of faces also peers, dims,
// sizes, strides, and that no tag stands twice for one peer. Pure: compares pointers, never follows them.
// O(n log n); faces whose address ranges interleave are compared pair by pair.
Status check_share(const Collective& collective, const Share& share, std::int32_t ranks);

}  // namespace muster
