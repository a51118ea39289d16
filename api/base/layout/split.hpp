// Split: how the items of one dim are divided among ranks. Pure; every rank computes what every other has.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// Items [offset, offset + length) of a dim.
struct Interval {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A rule. For n items over k ranks, rank r has:
//
//   ceil         [min(r·c, n), min((r+1)·c, n)) with c = ⌈n/k⌉. The last ranks may have nothing. The rule of
//                FSDP2 and DTensor.
//   balanced     ⌊n/k⌋ items, and one more if r < n mod k. The rule of DeepSpeed's AutoTP.
//   aligned(g)   balanced, over ⌊n/g⌋ units of g items each; what is left over goes to the last rank. Whole
//                attention heads: g is the size of a head.
//   given(s)     s[r] items.
//
// A dim may be several tensors end to end, as fused QKV is: then each is divided by itself, and a rank's
// parts lie one behind the other (fused).
//
// Owns    its numbers.
// Thread  a value; any.
// Bound   a list has at most kListMax entries.
// Fails   check() with kBadArgument, which names the number at fault. intervals() asserts that check() passes.
class Split {
 public:
  static constexpr std::size_t kListMax = 65536;

  static Split ceil();
  static Split balanced();
  static Split aligned(std::int64_t grain);
  static Split given(std::vector<std::int64_t> lengths);
  // `lengths`: items of each tensor; together they are the dim.
  static Split fused(Split rule, std::vector<std::int64_t> lengths);

  // Whether `items` can be divided among `ranks`: a grain below 1, a negative length, lengths that do not add
  // up to the items or are not one per rank, a fused rule that is itself fused or given.
  Status check(std::int64_t items, std::int64_t ranks) const;

  // What rank `rank` of `ranks` has: in rising order, none of them empty.
  std::vector<Interval> intervals(std::int64_t items, std::int64_t ranks, std::int64_t rank) const;

  std::string name() const;  // "aligned(64)", "fused(balanced; 8, 4, 4)"
  friend bool operator==(const Split&, const Split&) = default;

 private:
  enum class Rule : std::uint8_t { kCeil, kBalanced, kAligned, kGiven };
  Split(Rule rule, std::int64_t grain, std::vector<std::int64_t> lengths);

  Rule rule_;
  std::int64_t grain_;
  std::vector<std::int64_t> lengths_;  // given
  std::vector<std::int64_t> fused_;    // empty: the dim is one tensor
};

}  // namespace muster
