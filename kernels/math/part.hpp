// The reduction or copy of a collective over a range of its elements, on the direct and the engine path. The
// caller is a member or a worker; it names the source elements and the places of the result.
#pragma once

#include "api/base/collective/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::math {

// Members [first, first + count) of a group.
struct Givers {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
// The members whose elements make block `block` of a member's target.
inline Givers givers_of(const Collective& what, std::uint32_t block, std::uint32_t members) {
  if (has_reduction(what.op)) return {0, members};
  return {gives_at_root(what.op) ? static_cast<std::uint32_t>(what.root) : block, 1};
}

// Makes `count` elements of each target the reduction of all sources, or a copy of the only source if the
// collective reduces nothing. deliver.hpp says what targets may be, and when they are streamed.
void carry_out(const Collective& what, std::span<const std::byte* const> sources,
               std::span<std::byte* const> targets, std::size_t count, std::size_t streaming_from_bytes);

}  // namespace muster::math
