// An operation drawn with all that one may have: any kind, dtype and operator, uneven and empty blocks at
// offsets of each member's own, faces, messages; with its memory before it, and after it as an oracle has it.
#pragma once

#include "tests/transport/collective_case.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <muster/muster.h>

namespace muster::test {

inline constexpr std::size_t kDrawnBytes = 64 << 10;  // of the memory of one, with that of all members

// Owns    what it was made of.
// Thread  one makes it; any read it.
// Bound   -
// Fails   -
class Drawn {
 public:
  Drawn(std::uint64_t seed, std::int32_t ranks) {
    namespace draw = transport::test;
    math::test::Random random(seed);
    std::size_t bytes = kDrawnBytes + 1;
    while (shape_.ranks != ranks || bytes > kDrawnBytes) {
      shape_ = draw::random_shape(random.next());
      shape_.misaligned_bytes &= ~std::size_t{7};  // a range begins at an element
      shape_.silent_root = false;
      if (shape_.ranks == ranks) static_cast<void>(draw::placements_of(shape_, &bytes));
    }
    case_ = draw::make_case(shape_);
  }

  muster_op op() const { return shape_.collective.op; }
  std::string text() const { return shape_.text(); }
  // Whether the member of that index has a part in it: of a message two have.
  bool concerns(std::size_t index) const { return placement(index) != nullptr; }

  void give(std::byte* memory) const { std::copy(case_.before.begin(), case_.before.end(), memory); }
  // The first byte that is not as it must be at that member; -1: all are.
  std::ptrdiff_t wrong(std::size_t index, const std::byte* memory) const {
    const auto [begin, end] = part(index);
    for (std::size_t i = 0; i < case_.before.size(); ++i) {
      const std::byte right = i >= begin && i < end ? case_.after[i] : case_.before[i];
      if (memory[i] != right) return static_cast<std::ptrdiff_t>(i);
    }
    return -1;
  }

  // Plans what that member says, its memory being there.
  muster_status_t plan(muster_session* session, muster_group group, std::size_t index, muster_range memory,
                       muster_plan* plan) const {
    const Collective& c = shape_.collective;
    const transport::test::Placement& p = *placement(index);
    muster_collective said = MUSTER_COLLECTIVE_INIT;
    said.op = c.op;
    said.group = group;
    if (c.op == MUSTER_BARRIER) return muster_plan_collective(session, &said, plan);
    if (is_transfer(c.op)) said.op = p.index == c.root ? MUSTER_SEND : MUSTER_RECV;
    said.dtype = c.dtype;
    if (c.op == MUSTER_EXCHANGE) {
      const auto sends = faces(p.sends, memory), receives = faces(p.receives, memory);
      said.sends = sends.data();
      said.receives = receives.data();
      said.send_count = static_cast<std::uint32_t>(sends.size());
      said.receive_count = static_cast<std::uint32_t>(receives.size());
      return muster_plan_collective(session, &said, plan);
    }
    said.redop = c.redop;
    said.scale = c.redop == MUSTER_PREMUL_SUM ? c.scale : 0.0;
    said.peer = said.op == MUSTER_SEND ? c.receiver : c.root;
    said.source = range(p.source, memory);
    said.target = range(p.target, memory);
    said.count = is_pairwise(c.op) && !is_transfer(c.op) ? p.count : c.first_piece.empty() ? c.count : 0;
    const bool is_root = p.index == c.root;
    const bool agreed = has_agreed_blocks(c.op);
    if (has_source_blocks(c.op, is_root))
      said.source_blocks = blocks(p, agreed ? c.counts : p.source_counts, p.source_offsets);
    if (has_target_blocks(c.op, is_root))
      said.target_blocks = blocks(p, agreed ? c.counts : p.target_counts, p.target_offsets);
    return muster_plan_collective(session, &said, plan);
  }

 private:
  using Placement = transport::test::Placement;

  const Placement* placement(std::size_t index) const {
    for (const Placement& member : case_.members)
      if (static_cast<std::size_t>(member.index) == index) return &member;
    return nullptr;
  }
  static muster_range range(std::size_t at, muster_range memory) {
    return at == transport::test::kNowhere ? muster_range{}
                                           : muster_range{memory.buffer, memory.offset_bytes + at};
  }
  static muster_blocks blocks(const Placement& p, const std::vector<std::uint64_t>& counts,
                              const std::vector<std::uint64_t>& offsets) {
    if (!p.piece_counts.empty()) return {nullptr, nullptr, p.piece_counts.data(), p.pieces.data()};
    return {counts.empty() ? nullptr : counts.data(), offsets.empty() ? nullptr : offsets.data(), nullptr,
            nullptr};
  }
  std::vector<muster_face> faces(const std::vector<transport::test::FacePlace>& places,
                                 muster_range memory) const {
    std::vector<muster_face> into;
    for (const auto& place : places) {
      muster_face face{place.peer, place.tag, {}};
      face.view.buffer = memory.buffer;
      face.view.offset_bytes = memory.offset_bytes + place.at;
      face.view.dtype = shape_.collective.dtype;
      face.view.dims = static_cast<std::int32_t>(place.size.size());
      std::copy(place.size.begin(), place.size.end(), face.view.size);
      std::copy(place.stride.begin(), place.stride.end(), face.view.stride);
      into.push_back(face);
    }
    return into;
  }
  // Where a member's vectors begin; members lie one behind the other.
  static std::size_t begin_of(const Placement& member) {
    std::size_t begin = std::min(member.source, member.target);
    for (const auto* list : {&member.sends, &member.receives})
      for (const auto& face : *list) begin = std::min(begin, face.at);
    return begin;
  }
  std::pair<std::size_t, std::size_t> part(std::size_t index) const {
    const Placement* mine = placement(index);
    const std::size_t begin = mine == nullptr ? transport::test::kNowhere : begin_of(*mine);
    std::size_t end = transport::test::kNowhere;
    for (const Placement& member : case_.members)
      if (const std::size_t other = begin_of(member); other > begin) end = std::min(end, other);
    return {begin, end};
  }

  transport::test::Shape shape_;
  transport::test::Case case_;
};

}  // namespace muster::test
