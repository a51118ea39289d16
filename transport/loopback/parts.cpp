#include "transport/loopback/parts.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "api/base/node_limits.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/part.hpp"
#include "kernels/math/strided.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace muster::transport::loopback {
namespace {

constexpr std::uint64_t kLineBytes = 64;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kTileBytes = 16 << 10;
// Extra cost of a block of an ALL_TO_ALL, or of a face, so that a part does not get too many small ones.
constexpr std::uint64_t kPieceBytes = 64;

// Size of one element of the row. An EXCHANGE has a row of bytes.
std::size_t element_bytes(const Collective& c) {
  return has_faces(c.op) ? 1 : dtype_bytes(c.dtype);
}

// How often each element of the row is read or written.
std::uint64_t touches(muster_op op, std::uint64_t members) {
  return (has_reduction(op) ? members : 1) + (may_share_target(op) ? members : 1);
}

// Into how many targets each element of the row is copied.
std::uint64_t copies(const Collective& c, std::uint64_t members) {
  return may_share_target(c.op) && c.shared_memory == 0 ? members : 1;
}

// A piece's length in the row: its elements, and behind them the cost of beginning it.
std::uint64_t charged(std::uint64_t count, std::size_t element_bytes) {
  if (count == 0) return 0;
  MUSTER_ASSERT(element_bytes > 0);
  return count + kPieceBytes / element_bytes;
}

// Elements of a part. A part is whole cache lines, so that two parts of an aligned vector never share one. It
// has at least a page of each vector, so that hardware prefetch pays off.
std::uint64_t part_elements(const Collective& collective, std::uint64_t members, std::uint64_t total) {
  const std::uint64_t bytes = kPartTrafficBytes / touches(collective.op, members) / kLineBytes * kLineBytes;
  std::uint64_t elements = std::max(bytes, kPageBytes) / element_bytes(collective);
  // Parts are numbered in 32 bits; larger vectors have larger parts.
  while (total / elements >= std::numeric_limits<std::uint32_t>::max()) elements *= 2;
  return elements;
}

// The member of that index whose faces with `one` move; nullptr: there is none. Members are in order of
// index.
const Member* partner(std::span<const Member> members, const Member& one, std::int32_t index) {
  const auto at = std::lower_bound(
      members.begin(), members.end(), index,
      [](const Member& member, std::int32_t wanted) { return member.share->index < wanted; });
  if (at == members.end() || at->share->index != index) return nullptr;
  return one.passive && at->passive ? nullptr : &*at;
}

// The bytes of a received face that move.
std::uint64_t moved_bytes(std::span<const Member> members, const Member& getter, const Face& face) {
  return partner(members, getter, face.peer) != nullptr ? face.bytes() : 0;
}

// Writes where each stretch begins, and the row's end. Returns the number of stretches.
std::size_t lay_out(const Collective& c, std::span<const Member> members, std::span<std::uint64_t> starts) {
  const std::size_t bytes = element_bytes(c);
  starts[0] = 0;
  const auto blocks = [&](std::span<const Block> list) {
    for (std::size_t i = 0; i < members.size(); ++i)
      starts[i + 1] = starts[i] + count_of(entries_of(c, list, i));
    return members.size();
  };
  const bool from_blocks = has_source_blocks(c.op, true);
  const bool to_blocks = has_target_blocks(c.op, true);
  const Share& root = *members[has_root(c.op) ? static_cast<std::size_t>(c.root) : 0].share;
  if (from_blocks != to_blocks) return blocks(from_blocks ? root.source_blocks : root.target_blocks);
  if (!from_blocks && !has_faces(c.op)) {
    starts[1] = has_data(c.op) ? c.count : 0;
    return 1;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    starts[i + 1] = starts[i];
    for (const Block& block : members[i].share->target_blocks) starts[i + 1] += charged(block.count, bytes);
    for (const Face& face : members[i].share->receives)
      starts[i + 1] += charged(moved_bytes(members, members[i], face), bytes);
  }
  return members.size();
}

// One stretch of a part, resolved: elements [first, last) of the stretch.
struct Piece {
  const Collective& collective;
  std::span<const Member> members;
  std::size_t element_bytes;
  std::size_t streaming_from;  // 0 or math::kNeverStream
  std::size_t stretch;
  std::uint64_t first;
  std::uint64_t last;

  std::uint64_t bytes() const { return (last - first) * element_bytes; }
  const Member& root() const { return members[static_cast<std::size_t>(collective.root)]; }
  // Where element `element` of a member's block lies.
  const std::byte* source(const Member& member, std::size_t block, std::uint64_t element) const {
    return member.source + (member.share->source_blocks[block].offset + element) * element_bytes;
  }
  std::byte* target(const Member& member, std::size_t block, std::uint64_t element) const {
    return member.target + (member.share->target_blocks[block].offset + element) * element_bytes;
  }
};

// Where a fragment of the stretch lies in a vector with those blocks. `cut`: it has a block for each member.
std::uint64_t offset_in(const Piece& piece, std::span<const Block> blocks, bool cut,
                        const Block::Fragment& fragment) {
  if (!cut) return own_offset(blocks, fragment);
  if (!piece.collective.first_piece.empty()) return fragment.cut_offset;
  return blocks[piece.stretch].offset + fragment.first;
}

// Carries the fragment out for all members that it concerns. A target that all members share is written once.
// A copy whose source is its target moves nothing.
void carry_out(const Piece& piece, const Block::Fragment& fragment) {
  const muster_op op = piece.collective.op;
  const std::span<const Member> members = piece.members;
  const auto stretch = static_cast<std::uint32_t>(piece.stretch);
  const auto count = static_cast<std::uint32_t>(members.size());
  const auto givers =
      is_transfer(op) ? math::Givers{0, 1} : math::givers_of(piece.collective, stretch, count);
  std::array<const std::byte*, kRanksOnNodeMax> sources;
  for (std::uint32_t k = 0; k < givers.count; ++k) {
    const Member& giver = members[givers.first + k];
    const auto& blocks = giver.share->source_blocks;
    sources[k] =
        giver.source + offset_in(piece, blocks, has_source_blocks(op, true), fragment) * piece.element_bytes;
  }
  std::array<std::byte*, kRanksOnNodeMax> targets;
  std::size_t getters = 0;
  const bool shared = piece.collective.shared_memory != 0;
  const auto to = [&](const Member& getter) {
    if (getter.target == nullptr) return;  // the root may ask for no copy of its own
    if (getters > 0 && shared) return;
    const auto& blocks = getter.share->target_blocks;
    targets[getters++] =
        getter.target + offset_in(piece, blocks, has_target_blocks(op, true), fragment) * piece.element_bytes;
  };
  if (may_share_target(op))
    for (const Member& member : members) to(member);
  else
    to(gets_at_root(op) ? piece.root() : members[is_transfer(op) ? 1 : piece.stretch]);
  if (getters == 0) return;
  math::carry_out(piece.collective, std::span(sources).first(givers.count), std::span(targets).first(getters),
                  fragment.count, piece.streaming_from);
}

void carry_out(const Piece& piece) {
  const Collective& c = piece.collective;
  if (c.first_piece.empty()) return carry_out(piece, {piece.first, piece.last - piece.first, 0, 0});
  const Share& any = *piece.members.front().share;
  const auto& cut = has_target_blocks(c.op, true) ? any.target_blocks : any.source_blocks;
  for_each_fragment(entries_of(c, cut, piece.stretch), piece.first, piece.last,
                    [&](const Block::Fragment& fragment) { carry_out(piece, fragment); });
}

void copy(const Piece& piece, const Member& to, std::size_t target_block, const Member& from,
          std::size_t source_block) {
  math::copy(piece.target(to, target_block, piece.first), piece.source(from, source_block, piece.first),
             piece.bytes(), piece.streaming_from);
}

// ---- pairs -----------------------------------------------------------------------------------------

// Whether the member's block for `peer` lies where the block from `peer` goes.
bool in_place(const Piece& piece, const Member& member, std::size_t peer) {
  const std::uint64_t count = member.share->source_blocks[peer].count;
  return count > 0 && member.share->target_blocks[peer].count == count &&
         piece.source(member, peer, 0) == piece.target(member, peer, 0);
}

// Copies the blocks of members `a` and `b` in both directions through a tile, because at least one of the two
// targets lies over a source.
void swap_blocks(const Piece& piece, std::size_t a, std::size_t b) {
  alignas(kLineBytes) std::array<std::byte, kTileBytes> tile;
  const Member& one = piece.members[a];
  const Member& other = piece.members[b];
  const std::uint64_t bytes = piece.bytes();
  for (std::uint64_t at = 0; at < bytes; at += kTileBytes) {
    const std::uint64_t length = std::min<std::uint64_t>(kTileBytes, bytes - at);
    math::copy(tile.data(), piece.source(one, b, piece.first) + at, length, math::kNeverStream);
    math::copy(piece.target(one, b, piece.first) + at, piece.source(other, a, piece.first) + at, length,
               math::kNeverStream);
    math::copy(piece.target(other, a, piece.first) + at, tile.data(), length, math::kNeverStream);
  }
}

void copy_pair(const Piece& piece, std::size_t from, std::size_t to) {
  const Member& giver = piece.members[from];
  const Member& getter = piece.members[to];
  const bool swaps = from != to && (in_place(piece, giver, to) || in_place(piece, getter, from));
  if (!swaps) return copy(piece, getter, from, giver, to);
  // swap_blocks does both directions, so only the pass with from < to calls it.
  if (from < to) swap_blocks(piece, from, to);
}

// The first send to member `to` with the tag; nullptr if there is none.
const Face* send_to(const Share& giver, std::int32_t to, std::uint32_t tag) {
  const auto face = std::find_if(giver.sends.begin(), giver.sends.end(),
                                 [&](const Face& f) { return f.peer == to && f.tag == tag; });
  return face == giver.sends.end() ? nullptr : &*face;
}

// Calls body(inner, i) for each i whose `count(i)` elements the piece overlaps. `first` and `last` of `inner`
// are counted within these elements.
template<class Count, class Body>
void for_each_piece(const Piece& piece, std::size_t pieces, Count count, Body body) {
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < pieces && at < piece.last; ++i) {
    const std::uint64_t elements = count(i);
    const std::uint64_t length = charged(elements, piece.element_bytes);
    if (at + length > piece.first) {
      Piece inner = piece;
      inner.first = piece.first > at ? std::min(piece.first - at, elements) : 0;
      inner.last = std::min(piece.last - at, elements);
      if (inner.first < inner.last) body(inner, i);
    }
    at += length;
  }
}

void all_to_all(const Piece& piece) {
  const std::size_t to = piece.stretch;
  const auto& blocks = piece.members[to].share->target_blocks;
  for_each_piece(
      piece, blocks.size(), [&](std::size_t from) { return blocks[from].count; },
      [&](const Piece& inner, std::size_t from) { copy_pair(inner, from, to); });
}

// The row of an EXCHANGE is of bytes. An element belongs to the part that its first byte belongs to.
void exchange(const Piece& piece) {
  const Member& member = piece.members[piece.stretch];
  const Share& getter = *member.share;
  for_each_piece(
      piece, getter.receives.size(),
      [&](std::size_t i) { return moved_bytes(piece.members, member, getter.receives[i]); },
      [&](const Piece& inner, std::size_t i) {
        const Face& face = getter.receives[i];
        const Member& giver = *partner(piece.members, member, face.peer);  // else it has no bytes here
        const Face* sent = send_to(*giver.share, getter.index, face.tag);
        // The caller promises matching edges. Check them all the same, because a wrong copy damages memory.
        if (sent == nullptr || sent->dtype != face.dtype || sent->count() != face.count()) return;
        const std::size_t element = face.element_bytes();
        math::copy_faces(face, *sent, (inner.first + element - 1) / element,
                         (inner.last + element - 1) / element, element, inner.streaming_from);
      });
}

void execute(const Piece& piece) {
  if (has_faces(piece.collective.op)) return exchange(piece);
  if (has_source_blocks(piece.collective.op, true) && has_target_blocks(piece.collective.op, true))
    return all_to_all(piece);
  carry_out(piece);
}

}  // namespace

CollectiveRow cut(const Collective& collective, std::span<const Member> members,
                  std::span<std::uint64_t> starts) {
  const std::size_t stretches = lay_out(collective, members, starts);
  CollectiveRow job{&collective, members, starts.first(stretches + 1), 1, 0, false};
  const std::uint64_t total = job.starts[stretches];
  if (total == 0) return job;
  job.part_elements = part_elements(collective, members.size(), total);
  job.parts = static_cast<std::uint32_t>((total - 1) / job.part_elements + 1);
  job.streams = total * element_bytes(collective) >= math::kStreamBytes / copies(collective, members.size());
  return job;
}

void execute_part(const CollectiveRow& job, std::uint32_t part) {
  const std::uint64_t first = part * job.part_elements;
  const std::uint64_t last = std::min(job.starts.back(), first + job.part_elements);
  Piece piece{*job.collective,
              job.members,
              element_bytes(*job.collective),
              job.streams ? 0 : math::kNeverStream,
              0,
              0,
              0};
  auto start = std::upper_bound(job.starts.begin(), job.starts.end(), first) - 1;
  for (; *start < last; ++start) {
    piece.stretch = static_cast<std::size_t>(start - job.starts.begin());
    piece.first = std::max(first, *start) - *start;
    piece.last = std::min(last, *(start + 1)) - *start;
    if (piece.first < piece.last) execute(piece);
  }
}

}  // namespace muster::transport::loopback
