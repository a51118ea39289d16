#include "api/base/layout/layout.hpp"

#include "api/base/assert.hpp"
#include "api/base/collective/collective.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace muster {
namespace {

using Interval = Split::Interval;

Status check_shape(std::span<const std::int64_t> shape) {
  if (shape.size() > std::size_t{MUSTER_TENSOR_DIMS_MAX})
    return failure(Code::kBadArgument, "the tensor has {} dims; at most {} are possible", shape.size(),
                   MUSTER_TENSOR_DIMS_MAX);
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0)
      return failure(Code::kBadArgument, "dim {} of the tensor has length {}; it must be 0 or more", dim,
                     shape[dim]);
    const std::int64_t length = std::max<std::int64_t>(shape[dim], 1);
    if (length > std::numeric_limits<std::int64_t>::max() / elements)
      return failure(Code::kBadArgument, "a tensor of shape {} is too large: dim {} takes it beyond 2^63 - 1",
                     to_text(shape), dim);
    elements *= length;
  }
  return Status();
}

bool can_be_partial(muster_redop redop) {
  return redop == MUSTER_SUM || redop == MUSTER_AVG || redop == MUSTER_MAX || redop == MUSTER_MIN ||
         redop == MUSTER_PROD;
}

std::int64_t items_of(std::span<const Interval> intervals) {
  std::int64_t items = 0;
  for (const Interval& interval : intervals) items += interval.length;
  return items;
}

// `parts` of the items that `intervals` have, laid end to end.
std::vector<Interval> take(std::span<const Interval> intervals, std::span<const Interval> parts) {
  std::vector<Interval> taken;
  std::size_t i = 0;
  std::int64_t before = 0;  // items of the intervals before i
  for (Interval part : parts) {
    while (part.length > 0) {
      while (part.offset - before >= intervals[i].length) before += intervals[i++].length;
      const std::int64_t skipped = part.offset - before;
      const std::int64_t length = std::min(part.length, intervals[i].length - skipped);
      append(taken, {intervals[i].offset + skipped, length});
      part = {part.offset + length, part.length - length};
    }
  }
  return taken;
}

}  // namespace

Placement Placement::shard(std::int32_t dim, Split split) {
  Placement placement;
  placement.kind = Kind::kShard;
  placement.dim = dim;
  placement.split = std::move(split);
  return placement;
}

Placement Placement::partial(muster_redop redop) {
  Placement placement;
  placement.kind = Kind::kPartial;
  placement.redop = redop;
  return placement;
}

Result<Layout> Layout::make(std::span<const std::int64_t> shape, std::vector<Axis> axes, Order order) {
  MUSTER_RETURN_IF_ERROR(check_shape(shape));
  Layout layout;
  layout.dims_ = shape.size();
  std::copy(shape.begin(), shape.end(), layout.shape_.begin());
  layout.axes_ = std::move(axes);
  layout.order_ = order;
  MUSTER_RETURN_IF_ERROR(layout.check_axes());
  for (std::size_t axis = layout.axes_.size(); axis-- > 0;) {
    layout.strides_[axis] = layout.ranks_;
    layout.ranks_ *= layout.axes_[axis].ranks;
  }
  for (std::size_t dim = 0; dim < layout.dims_; ++dim) {
    MUSTER_ASSIGN_OR_RETURN(layout.cuts_[dim], layout.cut(dim));
  }
  MUSTER_RETURN_IF_ERROR(layout.check_pieces());
  return layout;
}

Status Layout::check_axes() const {
  if (axes_.size() > kAxesMax)
    return failure(Code::kBadArgument, "{} axes; at most {} are possible", axes_.size(), kAxesMax);
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    if (axis.ranks < 1)
      return failure(Code::kBadArgument, "{} has {} ranks; it must have 1 or more", axis_text(i), axis.ranks);
    if (axis.ranks > kRanksMax / ranks)
      return failure(Code::kBadArgument, "{} has {} ranks, which makes more than {} with the axes before it",
                     axis_text(i), axis.ranks, kRanksMax);
    ranks *= axis.ranks;
    const Placement& placement = axis.placement;
    if (placement.kind == Placement::Kind::kShard &&
        (placement.dim < 0 || static_cast<std::size_t>(placement.dim) >= dims_))
      return failure(Code::kBadArgument, "{} shards dim {}; the tensor has {} dims, counted from 0",
                     axis_text(i), placement.dim, dims_);
    if (placement.kind == Placement::Kind::kPartial && !can_be_partial(placement.redop))
      return failure(Code::kBadArgument,
                     "{} is partial by reduction {} ({}); sum, avg, max, min and prod are possible",
                     axis_text(i), placement.redop, redop_name(placement.redop));
  }
  return Status();
}

std::string Layout::text() const {
  std::string text = "shape " + to_text(std::span(shape_).first(dims_));
  for (const Axis& axis : axes_) {
    const Placement& placement = axis.placement;
    text += fmt::format(", {} ({}) ", axis.name, axis.ranks);
    switch (placement.kind) {
      case Placement::Kind::kReplicate:
        text += "replicates";
        break;
      case Placement::Kind::kShard:
        text += fmt::format("shards dim {} {}", placement.dim, placement.split.name());
        break;
      case Placement::Kind::kPartial:
        text += fmt::format("is partial by {}", redop_name(placement.redop));
        break;
    }
  }
  return text + (order_ == Order::kInnermostFirst ? ", cut innermost first" : ", cut outermost first");
}

Result<Layout::Cut> Layout::cut(std::size_t dim) const {
  Cut cut;
  append(cut.intervals, {0, shape_[dim]});
  cut.ends.push_back(cut.intervals.size());
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const std::size_t axis = order_ == Order::kOutermostFirst ? i : axes_.size() - 1 - i;
    const Placement& placement = axes_[axis].placement;
    if (placement.kind != Placement::Kind::kShard || static_cast<std::size_t>(placement.dim) != dim) continue;
    MUSTER_ASSIGN_OR_RETURN(cut, cut_further(cut, dim, axis));
  }
  return cut;
}

// The axis divides what `before` has left at each coordinate of the axes that cut already.
Result<Layout::Cut> Layout::cut_further(const Cut& before, std::size_t dim, std::size_t axis) const {
  const Split& split = axes_[axis].placement.split;
  const std::int64_t ranks = axes_[axis].ranks;
  Cut after;
  after.axes = before.axes;
  after.axes.push_back(axis);
  for (std::size_t coordinate = 0; coordinate < before.ends.size(); ++coordinate) {
    const std::span<const Interval> left = before.at(coordinate);
    const std::int64_t items = items_of(left);
    if (const Status status = split.check(items, ranks); !status.ok())
      return fail(Code::kBadArgument, "{} cannot divide dim {}: {}", axis_text(axis), dim, status.message());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Interval> mine = take(left, split.intervals(items, ranks, rank));
      if (mine.size() > kIntervalsMax - after.intervals.size())
        return fail(Code::kBadArgument, "{} cuts dim {} into more than {} intervals; fuse fewer tensors",
                    axis_text(axis), dim, kIntervalsMax);
      after.intervals.insert(after.intervals.end(), mine.begin(), mine.end());
      after.ends.push_back(after.intervals.size());
    }
  }
  return after;
}

// Each axis cuts one dim, so some rank has the most intervals of all dims at once.
Status Layout::check_pieces() const {
  std::size_t pieces = 1;
  for (std::size_t dim = 0; dim < dims_; ++dim) {
    std::size_t most = 1;
    for (std::size_t i = 0; i < cuts_[dim].ends.size(); ++i) most = std::max(most, cuts_[dim].at(i).size());
    if (most > kPiecesMax / pieces)
      return failure(Code::kBadArgument,
                     "dim {} has up to {} intervals, which makes more than {} pieces of a rank", dim, most,
                     kPiecesMax);
    pieces *= most;
  }
  return Status();
}

std::span<const Interval> Layout::Cut::at(std::size_t coordinate) const {
  const std::size_t first = coordinate == 0 ? 0 : ends[coordinate - 1];
  return std::span(intervals).subspan(first, ends[coordinate] - first);
}

std::string Layout::axis_text(std::size_t axis) const {
  const std::string& name = axes_[axis].name;
  return name.empty() ? fmt::format("axis {}", axis) : fmt::format("axis {} ({})", axis, name);
}

std::int64_t Layout::coordinate(std::int64_t rank, std::size_t axis) const {
  return rank / strides_[axis] % axes_[axis].ranks;
}

std::span<const Interval> Layout::intervals(std::int64_t rank, std::size_t dim) const {
  MUSTER_ASSERT(rank >= 0 && rank < ranks_ && dim < dims_);
  const Cut& cut = cuts_[dim];
  std::int64_t at = 0;
  for (const std::size_t axis : cut.axes) at = at * axes_[axis].ranks + coordinate(rank, axis);
  return cut.at(static_cast<std::size_t>(at));
}

Index Layout::local_shape(std::int64_t rank) const {
  Index local{};
  for (std::size_t dim = 0; dim < dims_; ++dim) local[dim] = items_of(intervals(rank, dim));
  return local;
}

std::int64_t Layout::local_elements(std::int64_t rank) const {
  return Box{dims_, {}, local_shape(rank)}.elements();
}

std::vector<Layout::Piece> Layout::pieces(std::int64_t rank) const {
  std::vector<Piece> pieces{{Box{dims_, {}, {}}, {}}};
  for (std::size_t dim = 0; dim < dims_; ++dim) {
    std::vector<Piece> divided;
    for (Piece piece : pieces) {
      for (const Interval& interval : intervals(rank, dim)) {
        piece.box.offset[dim] = interval.offset;
        piece.box.length[dim] = interval.length;
        divided.push_back(piece);
        piece.at[dim] += interval.length;
      }
    }
    pieces = std::move(divided);
  }
  return pieces;
}

std::vector<std::int64_t> Layout::replicas(std::int64_t rank) const {
  std::vector<std::int64_t> ranks{first_replica(rank)};
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    if (axes_[axis].placement.kind != Placement::Kind::kReplicate) continue;
    const std::size_t inside = ranks.size();
    for (std::int64_t coordinate = 1; coordinate < axes_[axis].ranks; ++coordinate)
      for (std::size_t i = 0; i < inside; ++i) ranks.push_back(ranks[i] + coordinate * strides_[axis]);
  }
  return ranks;
}

std::int64_t Layout::first_replica(std::int64_t rank) const {
  MUSTER_ASSERT(rank >= 0 && rank < ranks_);
  std::int64_t first = rank;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    if (axes_[axis].placement.kind == Placement::Kind::kReplicate)
      first -= coordinate(rank, axis) * strides_[axis];
  return first;
}

}  // namespace muster
