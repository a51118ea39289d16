// Layout: which part of a tensor each rank of a mesh has (decision D10). Every rank's boxes come from one
// function. No other code replays placements, because a replay in another order gives other rows.
#pragma once

#include "api/base/layout/box.hpp"
#include "api/base/layout/split.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster {

struct Placement {
  enum class Kind : std::uint8_t {
    kReplicate,  // each rank along the axis has the same
    kShard,      // dim `dim` is divided along the axis
    kPartial,    // each rank along the axis has an addend; the tensor is their reduction by `redop`
  };

  Kind kind = Kind::kReplicate;
  std::int32_t dim = 0;             // kShard
  Split split = Split::ceil();      // kShard
  muster_redop redop = MUSTER_SUM;  // kPartial: any but PREMUL_SUM
  friend bool operator==(const Placement&, const Placement&) = default;

  static Placement replicate() { return {}; }
  static Placement shard(std::int32_t dim, Split split = Split::ceil());
  static Placement partial(muster_redop redop = MUSTER_SUM);
};

// A rank's array is the tensor's shape with each sharded dim cut. It is one piece, except where a fused dim
// makes it several. Along several partial axes the innermost is reduced first.
//
// Owns    shape, axes, and what the axes leave of each dim at each of their coordinates.
// Thread  a value; any.
// Bound   MUSTER_TENSOR_DIMS_MAX dims, kAxesMax axes, kRanksMax ranks, kIntervalsMax intervals of a dim over
//         all coordinates, kPiecesMax pieces of a rank. A shape whose lengths (0 counted as 1) have a product
//         in int64.
// Fails   make() with kBadArgument, which names axis, dim and value; the sentence is the same on every rank.
//         A rank outside the mesh is the caller's bug and asserts.
class Layout {
 public:
  // One dim of the mesh, and how the tensor lies along it.
  struct Axis {
    std::string name;  // for messages: "tp"
    std::int64_t ranks = 1;
    Placement placement;
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  // In which order the axes that shard one dim cut it. Innermost first: tp cuts the tensor, then FSDP cuts
  // what tp left, so each rank's rows are contiguous (a strided shard of torch.distributed). Outermost first
  // is what torch.distributed means by Shard, Shard.
  enum class Order : std::uint8_t { kInnermostFirst, kOutermostFirst };

  static constexpr std::size_t kAxesMax = 8;
  static constexpr std::int64_t kRanksMax = Split::kRanksMax;
  static constexpr std::size_t kIntervalsMax = 1 << 20;
  static constexpr std::size_t kPiecesMax = 1 << 16;

  // A box of the tensor and where it lies in the rank's own array.
  struct Piece {
    Box box;   // of the tensor
    Index at;  // its first element, in the rank's array
    friend bool operator==(const Piece&, const Piece&) = default;
  };

  // `shape`: of the whole tensor. `axes`: outermost first, so that a rank is the row-major index of its
  // coordinates.
  static Result<Layout> make(std::span<const std::int64_t> shape, std::vector<Axis> axes,
                             Order order = Order::kInnermostFirst);

  std::size_t dims() const { return dims_; }
  const Index& shape() const { return shape_; }
  std::span<const Axis> axes() const { return axes_; }
  Order order() const { return order_; }
  std::int64_t ranks() const { return ranks_; }   // the product of the axes'; 1 without axes
  std::string axis_text(std::size_t axis) const;  // "axis 1 (tp)"
  std::string text() const;  // "shape [9, 4], tp (2) shards dim 0 ceil, cut innermost first"

  // How far apart two ranks are whose coordinates along the axis differ by 1.
  std::int64_t stride(std::size_t axis) const { return strides_[axis]; }
  std::int64_t coordinate(std::int64_t rank, std::size_t axis) const;

  // The rank's intervals of one dim: in rising order, none empty, no two touching.
  std::span<const Split::Interval> intervals(std::int64_t rank, std::size_t dim) const;
  Index local_shape(std::int64_t rank) const;
  std::int64_t local_elements(std::int64_t rank) const;
  // In the row-major order of the rank's array; none for a rank that has nothing.
  std::vector<Piece> pieces(std::int64_t rank) const;

  // The ranks that have what `rank` has, itself among them, in rising order. Along a partial axis they have
  // different addends, so those do not count.
  std::vector<std::int64_t> replicas(std::int64_t rank) const;
  std::int64_t first_replica(std::int64_t rank) const;  // the lowest of them

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  // The intervals into which some axes cut a dim.
  struct Cut {
    std::vector<std::size_t> axes;           // in the order in which they cut
    std::vector<Split::Interval> intervals;  // of all coordinates along the axes, in row-major order
    std::vector<std::size_t> ends;           // where the intervals of each coordinate end
    std::span<const Split::Interval> at(std::size_t coordinate) const;
    friend bool operator==(const Cut&, const Cut&) = default;
  };

  Layout() = default;
  Status check_axes() const;
  Result<Cut> cut(std::size_t dim) const;
  Result<Cut> cut_further(const Cut& before, std::size_t dim, std::size_t axis) const;
  Status check_pieces() const;

  std::size_t dims_ = 0;
  Index shape_{};
  std::vector<Axis> axes_;
  Order order_ = Order::kInnermostFirst;
  std::int64_t ranks_ = 1;
  std::array<std::int64_t, kAxesMax> strides_{};
  std::array<Cut, MUSTER_TENSOR_DIMS_MAX> cuts_;
};

}  // namespace muster
