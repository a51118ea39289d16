// Split: how the items of one dim are divided among ranks. Pure; every rank computes the parts of every
// other.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// A rule. For n items over k ranks, rank r has:
//
//   ceil         [min(r·c, n), min((r+1)·c, n)) with c = ⌈n/k⌉. The last ranks may have nothing. The rule of
//                FSDP2 and DTensor.
//   balanced     ⌊n/k⌋ items, and one more if r < n mod k. The rule of DeepSpeed's AutoTP.
//   aligned(g)   balanced, over ⌊n/g⌋ units of g items each; what is left over goes to the last rank. So a
//                rank has whole attention heads: g is the size of a head.
//   given(s)     s[r] items.
//
// A dim may be several tensors end to end, as fused QKV is: then each is divided by itself, and a rank's
// parts lie one behind the other (fused).
//
// Owns    its numbers.
// Thread  a value; any.
// Bound   kRanksMax given lengths, kFusedMax fused tensors.
// Fails   check() with kBadArgument, which names the number at fault. The rest is for what check() passes.
class Split {
 public:
  // Items [offset, offset + length) of a dim.
  struct Interval {
    std::int64_t offset = 0;
    std::int64_t length = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  };

  static constexpr std::int64_t kRanksMax = 65536;
  static constexpr std::size_t kFusedMax = 1024;

  static Split ceil();
  static Split balanced();
  static Split aligned(std::int64_t grain);
  static Split given(std::vector<std::int64_t> lengths);
  // `lengths`: items of each tensor; together they are the dim.
  static Split fused(Split rule, std::vector<std::int64_t> lengths);

  // Whether `items` can be divided among `ranks`. Refused are a grain below 1, a negative length, lengths
  // that do not add up to the items or are not one per rank, and a fused rule that is itself fused or given.
  Status check(std::int64_t items, std::int64_t ranks) const;

  // The intervals of rank `rank` of `ranks`: in rising order, none of them empty, no two of them touching.
  std::vector<Interval> intervals(std::int64_t items, std::int64_t ranks, std::int64_t rank) const;

  std::string name() const;  // "aligned(64)", "fused(balanced; 8, 4, 4)"
  friend bool operator==(const Split&, const Split&) = default;

 private:
  enum class Rule : std::uint8_t { kCeil, kBalanced, kAligned, kGiven };
  explicit Split(Rule rule) : rule_(rule) {}
  std::int64_t start(std::int64_t items, std::int64_t ranks, std::int64_t rank) const;

  Rule rule_;
  std::int64_t grain_ = 1;             // aligned
  std::vector<std::int64_t> lengths_;  // given
  std::vector<std::int64_t> starts_;   // given: the first item of each rank, and the number of items
  std::uint32_t fusions_ = 0;          // how often fused() was called: 1 is legal
  std::vector<std::int64_t> fused_;
};
// Adds an interval that begins where the last one ends, or behind it. Intervals that touch become one; an
// empty one adds nothing.
void append(std::vector<Split::Interval>& intervals, Split::Interval interval);

}  // namespace muster
