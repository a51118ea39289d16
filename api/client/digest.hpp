// Digests: what a member holds in a few words, and what the words of all members mean. Pure functions.
//
// 128-bit XXH3 without a key, as for signatures: two contents that differ by accident have equal digests once
// in 2^128; this finds faults, not enemies.
#pragma once

#include "api/base/signature.hpp"
#include "api/base/status.hpp"
#include "api/client/direct/operation.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster::client {

// Plain data: it travels between members.
struct Held {
  Hash128 digest;           // of all elements, view after view, in row-major order
  std::uint64_t bytes = 0;  // of them
  std::uint32_t views = 0;
  std::uint32_t kinds = 0;  // a hash of each view's dtype and elements
};
static_assert(sizeof(Held) == 32, "no padding: all of it travels");

// A view as it lies in this process: `face` as checked_view() in compare.cpp found it sound.
struct View {
  muster_dtype dtype = 0;
  Face face;
};
Held held_of(std::span<const View> views);

// Every member has the whole result in memory of its own.
bool is_shared_result(const Collective& collective) noexcept;
// The result of a plan for which is_shared_result() holds, at this member.
Held held_of(const DirectPlan& plan);
// "after all_reduce of f32 (model.py:311)", for judge().
std::string result_name(const DirectPlan& plan, std::string_view site);

// What all members say of what they hold, in group order; a function of that alone, so each finds the same.
// CORRUPT: digests differ. MISMATCH: what they hold differs in kind. `what` begins the text.
Status judge(std::string_view what, std::span<const std::int32_t> ranks, std::span<const Held> held);

}  // namespace muster::client
