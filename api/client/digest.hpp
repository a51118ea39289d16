// Digests: a few words for the data of a member, and the comparison of all members' words. Pure functions.
//
// 128-bit XXH3 without a key, as for signatures: different contents have equal digests by accident once in
// 2^128. Digests find faults; they do not stop an attacker.
#pragma once

#include "api/base/collective/signature.hpp"
#include "api/base/status.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster::client {

// The digest of a member's data. It is plain data, because it travels between members.
struct Held {
  // A view in this process's memory: `face` comes from checked_view() in entries/compare.cpp.
  struct View {
    muster_dtype dtype = 0;
    Face face;
  };

  Hash128 digest;           // of all elements, view after view, in row-major order
  std::uint64_t bytes = 0;  // of all elements
  std::uint32_t views = 0;
  std::uint32_t kinds = 0;  // a hash of each view's dtype and elements
};
static_assert(sizeof(Held) == 32, "no padding: all of it travels");

Held held_of(std::span<const Held::View> views);

// Whether every member gets the whole result, and there is more than one copy of it. A target that members
// share is one copy, or one for each node of a group that `spans` nodes.
bool is_shared_result(const Collective& collective, bool spans) noexcept;
// The result of an operation for which is_shared_result() holds, at this member.
Held held_of(const Collective& collective, const Share& mine);
// "after all_reduce of f32 (model.py:311)", for judge().
std::string result_name(const Collective& collective, std::string_view site);

// Compares the data of all members, in group order. The result depends on that alone, so each member finds
// the same. CORRUPT: digests differ. MISMATCH: number, dtype or elements of the views differ. `what` begins
// the text.
Status judge(std::string_view what, std::span<const std::int32_t> ranks, std::span<const Held> held);

}  // namespace muster::client
