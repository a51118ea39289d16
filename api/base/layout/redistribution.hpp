// Redistribution: how a tensor gets from one layout to another, as lists of boxes. Nothing here communicates.
//
// Reference: the transitions of torch.distributed's DTensor. Here they are three steps at most: reduce what
// is partial, move boxes (one all-to-all of strided views), divide what becomes partial.
#pragma once

#include "api/base/layout/layout.hpp"

#include <cstdint>
#include <vector>

namespace muster {

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

// Owns    both layouts.
// Thread  a value; any.
// Bound   the lists of a rank: its pieces times the other layout's ranks and pieces.
// Fails   make() with kBadArgument: other shapes; other numbers of ranks, unless `any_mesh`; a shard that
// would
//         become partial; a replicated axis that would become partial by another reduction than SUM or AVG.
class Redistribution {
 public:
  enum class Ranks : std::uint8_t {
    kSame,   // rank r of one layout is rank r of the other: what it has already it gives to itself
    kOther,  // the ranks have nothing to do with one another, as when a checkpoint is read on another mesh
  };
  static Result<Redistribution> make(Layout from, Layout to, Ranks ranks = Ranks::kSame);

  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }

  // Reductions to run first, each in place over the whole array of a rank. An axis that is partial in both
  // layouts, by the same operation, is not reduced.
  const std::vector<AxisReduction>& reductions() const { return reductions_; }
  // What to multiply the result by: 1, or 1 over the ranks of the axes that become partial by SUM.
  double scale() const { return scale_; }

  // What a rank gives and gets, itself included, ordered by the other rank, then by the box. Each element
  // that a rank gets comes from one giver: from itself if it has it, else from the replicas in turn, so that
  // they share the work. Both ends compute the same.
  std::vector<Overlap> sends(std::int64_t rank) const;
  std::vector<Overlap> receives(std::int64_t rank) const;

  // Whether every rank keeps its array as it is: nothing to reduce, to move or to scale.
  bool nothing_to_do() const;

 private:
  Redistribution(Layout from, Layout to);

  Layout from_;
  Layout to_;
  Ranks ranks_ = Ranks::kSame;
  std::vector<AxisReduction> reductions_;
  double scale_ = 1;
};

}  // namespace muster
