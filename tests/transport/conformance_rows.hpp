// The rows of the conformance suite: each operation, dtype, operator, number of ranks, and place, at a
// length.
#pragma once

#include "tests/transport/collective_case.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace muster::transport::test {

inline constexpr std::int32_t kRanks[] = {1, 2, 3, 4, 5, 8};
inline constexpr std::uint64_t kEachCount[] = {0, 1, 7, 4099};
inline constexpr std::uint64_t kLongCount = 262'147;

// MUSTER_CONFORMANCE=full: every dtype and operator with every count.
inline bool takes_all() {
  const char* said = std::getenv("MUSTER_CONFORMANCE");
  return said != nullptr && std::string_view(said) == "full";
}

// Whether a longer count is worth the time that its slow oracle takes: for the dtypes of different width and
// format, and for the sum of all.
inline bool takes_long(muster_dtype dtype, muster_redop redop) {
  if (takes_all()) return true;
  const bool few = dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_U8;
#if defined(MUSTER_SANITIZED)
  return few && redop <= MUSTER_SUM;
#else
  return few || redop <= MUSTER_SUM;
#endif
}

inline bool takes_longest(muster_dtype dtype, muster_redop redop, [[maybe_unused]] std::int32_t ranks) {
  if (takes_all()) return true;
#if defined(MUSTER_SANITIZED)
  // Instrumented, one long case costs up to a second: a subset that still crosses parts in every operation.
  if (dtype == MUSTER_BF16 || redop > MUSTER_SUM || ranks % 2 == 0) return false;
#endif
  const bool few = dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_U8;
  return few && (redop <= MUSTER_SUM || redop == MUSTER_MAX);
}

inline std::vector<muster_redop> redops_of(muster_op op) {
  if (!has_reduction(op)) return {0};
  return {std::begin(math::test::kRedops), std::end(math::test::kRedops)};
}

// `act` says whether to go on; the same is returned.
template<class Act>
bool for_each_row(Act act) {
  for (const muster_op op : kOps)
    for (const muster_dtype dtype : math::test::kDtypes)
      for (const muster_redop redop : redops_of(op))
        for (const std::int32_t ranks : kRanks) {
          if (is_transfer(op) && ranks == 1) continue;
          for (const Place place : {Place::kApart, Place::kInPlace})
            if (!act(op, dtype, redop, ranks, place)) return false;
        }
  return true;
}

// Each block, and each face, has `count` elements.
template<class Act>
bool for_each_shape(std::uint64_t count, Act act) {
  return for_each_row(
      [&](muster_op op, muster_dtype dtype, muster_redop redop, std::int32_t ranks, Place place) {
        if (count >= 4099 && !takes_long(dtype, redop)) return true;
        return act(shape_of(op, dtype, redop, ranks, count, place));
      });
}

// kLongCount elements in the whole row. Blocks get uneven counts that add up to it. Root, pair, misalignment
// and the order of blocks are another in each case.
template<class Act>
bool for_each_long_shape(Act act) {
  std::uint64_t seed = 0;
  return for_each_row(
      [&](muster_op op, muster_dtype dtype, muster_redop redop, std::int32_t ranks, Place place) {
        if (!takes_longest(dtype, redop, ranks)) return true;
        return act(varied(long_shape(op, dtype, redop, ranks, kLongCount, place), ++seed));
      });
}

}  // namespace muster::transport::test
