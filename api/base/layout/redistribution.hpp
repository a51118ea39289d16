// Redistribution: how a tensor gets from one layout to another, as lists of boxes. Nothing here communicates.
//
// Reference: the transitions of torch.distributed's DTensor. Here they are three steps at most: reduce what
// is partial, move boxes (one all-to-all of strided views), divide what becomes partial.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

// Two axes are the same one if every rank has the same coordinate along both: equally many ranks, equal
// strides.
//
// Owns    both layouts.
// Thread  a value; any.
// Bound   kOverlapsMax in a list. Time: the ranks times the groups of replicas that give to a rank.
// Fails   make() with kBadArgument: other shapes; with kSame, other numbers of ranks, or a sharded axis that
//         would become partial; an axis that would become partial by another reduction than SUM or AVG.
//         sends(), receives() and part_reduction() with kNoResource.
class Redistribution {
 public:
  // Rank `from` of the old layout gives `box` to rank `to` of the new one.
  struct Overlap {
    std::int64_t from = 0;
    std::int64_t to = 0;
    Box box;      // of the tensor
    Index taken;  // its first element, in the giver's array
    Index put;    // its first element, in the receiver's array
    friend bool operator==(const Overlap&, const Overlap&) = default;
  };

  // An axis of the old layout along which addends are reduced before anything moves.
  struct AxisReduction {
    std::size_t axis = 0;
    muster_redop redop = MUSTER_SUM;
    friend bool operator==(const AxisReduction&, const AxisReduction&) = default;
  };

  // A reduction among some ranks of which each keeps a part: an all-reduce where each keeps all, else a
  // reduce-scatter.
  struct PartReduction {
    muster_redop redop = MUSTER_SUM;
    std::vector<std::int64_t> ranks;         // in rising order; their old arrays have one shape
    std::vector<std::vector<Block>> blocks;  // by rank: its new array, as elements of the old one, end to end
  };

  static constexpr std::uint64_t kOverlapsMax = 1 << 16;

  enum class Ranks : std::uint8_t {
    kSame,   // rank r of one layout is rank r of the other: what it has already it gives to itself
    kOther,  // the ranks have nothing to do with one another, as when a checkpoint is read on another mesh
  };
  static Result<Redistribution> make(Layout from, Layout to, Ranks ranks = Ranks::kSame);

  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }

  // Reductions to run first, in this order, each in place over the whole array of a rank. An axis that is
  // partial in both layouts by the same operation is not reduced, unless that would give another result.
  const std::vector<AxisReduction>& reductions() const { return reductions_; }
  // The factor for the result: 1, or 1 over the ranks of the axes that become partial by SUM.
  double scale() const { return scale_; }
  // Whether some rank's array changes between the reductions and the scale.
  bool moves() const;

  // Whether one reduction is all: by one operation, each rank keeps a part of what it has, and there is no
  // scale. The axes that are reduced are as one axis, so the order of a sum is that of its ranks.
  bool is_part_reduction() const;
  // The reduction in which a rank takes part. Errors, the same at each rank: kNoResource (a reduction's
  // blocks are more than kPiecesMax).
  Result<PartReduction> part_reduction(std::int64_t rank) const;

  // A rank that gives and gets more than `most` boxes together, or none if there is no such rank. A box that
  // a rank gives to itself counts twice. Every rank gets the same answer.
  std::optional<std::int64_t> crowded(std::uint64_t most) const;
  // The boxes that a rank gives and gets, itself included, ordered by the other rank, then by the box. Each
  // element comes from one giver. A rank that already has an element is its own giver; else the replicas take
  // turns, which shares the work. Both ends compute the same.
  Result<std::vector<Overlap>> sends(std::int64_t rank) const;
  Result<std::vector<Overlap>> receives(std::int64_t rank) const;

 private:
  Redistribution(Layout from, Layout to, Ranks ranks);
  Status decide_reductions();
  Status decide_scale();
  bool stays_partial(std::size_t axis) const;
  bool can_give(std::int64_t from, std::int64_t to) const;
  bool has_already(std::int64_t first, std::int64_t to) const;
  std::size_t turn(std::int64_t first, std::int64_t to) const;
  Status add(std::int64_t from, std::int64_t to, std::vector<Overlap>& overlaps) const;
  std::uint64_t boxes_between(std::int64_t from, std::int64_t to) const;
  bool has_simple_parts() const;
  bool keeps_a_part(std::int64_t rank) const;
  std::vector<std::int64_t> peers(std::int64_t rank) const;
  std::size_t cut_dims(std::int64_t rank) const;
  std::uint64_t block_count(std::int64_t rank) const;
  std::vector<Block> blocks(std::int64_t rank) const;

  Layout from_;
  Layout to_;
  Layout reduced_;  // `from_` after the reductions: what is partial in it stays partial
  Ranks ranks_;
  std::vector<AxisReduction> reductions_;
  double scale_ = 1;
};

}  // namespace muster
