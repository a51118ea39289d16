// Where a member's blocks lie in its memory.
#pragma once

#include "api/base/collective/collective.hpp"
#include "transport/collective/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::transport::span {

// The member of that index; nullptr: it is on another node.
inline const LocalMember* find_member(std::span<const LocalMember> members, std::uint32_t index) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const LocalMember& each) {
    return each.share->index == static_cast<std::int32_t>(index);
  });
  return found == members.end() ? nullptr : &*found;
}

// A block of a vector: the elements of its entries, end to end.
template<class Byte>
struct BlockView {
  Byte* base = nullptr;
  std::span<const Block> entries;
  std::size_t element = 1;  // bytes

  // Calls visit(bytes, first, count) for each stretch of memory of elements [from, to).
  template<class Visit>
  void for_each(std::uint64_t from, std::uint64_t to, Visit visit) const {
    for_each_fragment(entries, from, to, [&](const Block::Fragment& fragment) {
      visit(base + fragment.cut_offset * element, fragment.first, fragment.count);
    });
  }
};

// Block `block` of the member's contribution. A side that has the own block alone has no other.
inline BlockView<const std::byte> source_block(const Collective& c, const LocalMember& member,
                                               std::size_t block, std::size_t element) {
  const bool cut = has_source_blocks(c.op, member.share->index == c.root);
  const auto& blocks = member.share->source_blocks;
  return {member.bases.source, cut ? entries_of(c, blocks, block) : std::span<const Block>(blocks), element};
}
inline BlockView<std::byte> target_block(const Collective& c, const LocalMember& member, std::size_t block,
                                         std::size_t element) {
  const bool cut = has_target_blocks(c.op, member.share->index == c.root);
  const auto& blocks = member.share->target_blocks;
  return {member.bases.target, cut ? entries_of(c, blocks, block) : std::span<const Block>(blocks), element};
}

}  // namespace muster::transport::span
