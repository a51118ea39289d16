// Strong ids, so that a Rank is no GroupId; and Handle, by which a client names an object of the daemon.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace muster {

template<class Tag, class Rep = std::uint32_t>
struct Id {
  Rep value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using Rank = Id<struct RankTag, std::uint32_t>;            // position in the job's world, 0..world-1
using LocalRank = Id<struct LocalRankTag, std::uint32_t>;  // position among the ranks of this node, dense
using NodeIndex = Id<struct NodeTag, std::uint32_t>;       // position in the job's list of nodes
using GroupId = Id<struct GroupTag, std::uint32_t>;        // index in the job's canonical list of groups
using LaneId = Id<struct LaneTag, std::uint32_t>;          // class and name of lanes that meet, in the job
using SessionId = Id<struct SessionTag, std::uint32_t>;    // one attachment of one client

// Slot and generation in 64 bits. A slot never reuses a generation (8.9 years at a million a second), so a
// stale handle never equals a live one. Zero is never valid.
struct Handle {
  std::uint64_t bits = 0;

  static constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << 48) - 1;

  constexpr Handle() = default;
  constexpr explicit Handle(std::uint64_t b) : bits(b) {}
  constexpr Handle(std::uint16_t slot, std::uint64_t generation)
      : bits((std::uint64_t{slot} << 48) | (generation & kGenerationMask)) {}

  constexpr std::uint16_t slot() const { return static_cast<std::uint16_t>(bits >> 48); }
  constexpr std::uint64_t generation() const { return bits & kGenerationMask; }
  constexpr bool valid() const { return generation() != 0; }
  friend constexpr auto operator<=>(Handle, Handle) = default;
};

}  // namespace muster

template<class Tag, class Rep>
struct std::hash<muster::Id<Tag, Rep>> {
  std::size_t operator()(muster::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
