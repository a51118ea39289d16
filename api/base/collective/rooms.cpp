#include "api/base/collective/rooms.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <bit>

namespace muster {
namespace {

// Bytes [first, last) of one block.
struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t block = 0;
};

ByteRange range_of(std::uint64_t base, std::span<const Block> blocks, std::size_t i, std::size_t bytes) {
  const std::uint64_t first = base + blocks[i].offset * bytes;
  return {first, first + blocks[i].count * bytes, i};
}

// Whether a source block may lie exactly where a target block lies ("in place"). If both sides are cut alike,
// it must be the same block; else the block of the cut side must be the own one.
bool may_coincide(const Collective& c, const Share& share, const ByteRange& source, const ByteRange& target) {
  const auto own = static_cast<std::size_t>(share.index);
  if (!c.first_piece.empty()) {
    const bool of_target = has_target_blocks(c.op, false);
    const std::size_t cut = of_target ? target.block : source.block;
    const std::size_t mine = of_target ? source.block : target.block;
    return cut == c.first_piece[own] + mine && cut < c.first_piece[own + 1];
  }
  const bool one_source = share.source_blocks.size() == 1;
  const bool one_target = share.target_blocks.size() == 1;
  if (one_source == one_target) return source.block == target.block;
  return one_source ? target.block == own : source.block == own;
}

}  // namespace

std::vector<std::uint32_t> in_order(std::span<const Block> blocks) {
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i].count > 0) order.push_back(static_cast<std::uint32_t>(i));
  const auto by_offset = [&](std::uint32_t a, std::uint32_t b) {
    return blocks[a].offset < blocks[b].offset;
  };
  // Blocks mostly lie end to end, and need no sorting.
  if (!std::is_sorted(order.begin(), order.end(), by_offset))
    std::sort(order.begin(), order.end(), by_offset);
  return order;
}

Status check_reads(const Collective& c, const Share& share, const Rooms::Offsets& at,
                   std::span<const std::uint32_t> order) {
  const std::size_t bytes = dtype_bytes(c.dtype);
  for (std::size_t i = 0; i < share.source_blocks.size(); ++i) {
    if (share.source_blocks[i].count == 0) continue;
    const ByteRange read = range_of(at.source, share.source_blocks, i, bytes);
    // Writes are apart and sorted: only the last one that begins before the read's end can meet it.
    const auto after = std::partition_point(order.begin(), order.end(), [&](std::uint32_t block) {
      return range_of(at.target, share.target_blocks, block, bytes).first < read.last;
    });
    if (after == order.begin()) continue;
    const ByteRange write = range_of(at.target, share.target_blocks, *(after - 1), bytes);
    if (write.last <= read.first) continue;
    const bool same = write.first == read.first && write.last == read.last;
    if (!same || !may_coincide(c, share, read, write))
      return failure(
          Code::kBadArgument,
          "source and target of member {} overlap: block {} of the source begins {} bytes from block "
          "{} of the target; in place means the same start, or the own block of the whole vector",
          share.index, read.block, static_cast<std::int64_t>(read.first - write.first), write.block);
  }
  return {};
}

Rooms::Rooms(const Collective& c, const Share& share, Room source, Room target, Offsets planned)
    : planned_(planned), movable_(has_vectors(c.op) && c.shared_memory == 0) {
  if (!movable_) return;
  const std::uint64_t element = dtype_bytes(c.dtype);
  MUSTER_ASSERT(std::has_single_bit(element));
  const auto side = [element](const Room& room, std::span<const Block> blocks) {
    return Side{room, extent_of(blocks) * element, blocks.empty() ? 0 : element - 1};
  };
  source_ = side(source, share.source_blocks);
  target_ = side(target, share.target_blocks);
  apart_ = source_.need == 0 || target_.need == 0 || source.buffer != target.buffer;
  in_pieces_ = !c.first_piece.empty();
  order_ = in_order(share.target_blocks);
}

bool Rooms::allow(const Collective& c, const Share& share, const Offsets& to) const {
  if (!movable_) return false;
  if (!source_.aligned(to.source) || !source_.fits(to.source)) return false;
  if (!target_.aligned(to.target) || !target_.fits(to.target)) return false;
  if (keep_distance(to)) return true;
  if (!keep_place(to)) return false;
  const bool meet = to.source < to.target + target_.need && to.target < to.source + source_.need;
  return !meet || check_reads(c, share, to, order_).ok();
}

Status Rooms::check_side(const Side& side, const char* name, std::uint64_t offset) const {
  if (!side.aligned(offset))
    return failure(Code::kBadArgument,
                   "{}_offset_bytes {} is not a multiple of the {} bytes of an element; give a multiple",
                   name, offset, side.align + 1);
  if (side.fits(offset)) return {};
  return failure(Code::kBadArgument,
                 "{}_offset_bytes {}: the {} bytes from there end behind the {} bytes of the buffer; give at "
                 "most {}",
                 name, offset, side.need, side.room.bytes,
                 (side.room.bytes - std::min(side.room.bytes, side.need)) & ~side.align);
}

Status Rooms::check(const Collective& c, const Share& share, const Offsets& to) const {
  if (!has_vectors(c.op))
    return failure(Code::kUnsupported, "{} has no vectors that offsets could move; make another plan",
                   op_name(c.op));
  if (!movable_)
    return failure(Code::kUnsupported,
                   "the target of this {} is node-shared: all members name one place, which no start moves; "
                   "make another plan",
                   op_name(c.op));
  MUSTER_RETURN_IF_ERROR(check_side(source_, "source", to.source));
  MUSTER_RETURN_IF_ERROR(check_side(target_, "target", to.target));
  if (keep_distance(to)) return {};
  if (!keep_place(to))
    return failure(
        Code::kBadArgument,
        "source_offset_bytes {} and target_offset_bytes {}: the plan, whose blocks lie in pieces, was "
        "{}made in place; give {} offsets, or make another plan",
        to.source, to.target, distance(planned_) == 0 ? "" : "not ",
        distance(planned_) == 0 ? "equal" : "different");
  return check_reads(c, share, to, order_);
}

Share::Bases Rooms::bases(const Share& share, const Offsets& to) const {
  Share::Bases moved = bases_of(share);  // a vector without elements has no place
  if (moved.source != nullptr) moved.source += static_cast<std::ptrdiff_t>(to.source - planned_.source);
  if (moved.target != nullptr) moved.target += static_cast<std::ptrdiff_t>(to.target - planned_.target);
  return moved;
}

}  // namespace muster
