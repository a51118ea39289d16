// What a collective makes of a range of its elements, on every path: whoever carries it out, a member for
// itself or a worker for all, says which members' elements come in and where the result goes.
#pragma once

#include "api/base/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::math {

// Members [first, first + count) of a group.
struct Givers {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
// Whose elements make block `block` of what a member gets.
inline Givers givers_of(const Collective& what, std::uint32_t block, std::uint32_t members) {
  if (has_reduction(what.op)) return {0, members};
  return {gives_at_root(what.op) ? static_cast<std::uint32_t>(what.root) : block, 1};
}

// `count` elements of each target become the reduction of all sources, or a copy of the one source of a
// collective that reduces nothing. What targets may be, and from when on they are streamed: see deliver.hpp.
void carry_out(const Collective& what, std::span<const std::byte* const> sources,
               std::span<std::byte* const> targets, std::size_t count, std::size_t streaming_from_bytes);

}  // namespace muster::math
