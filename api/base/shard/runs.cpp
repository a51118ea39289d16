#include "api/base/shard/runs.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace muster::shard {
namespace {

// Indexes of a dim that follow each other both in the shard and in the whole tensor.
struct SharedIndexes {
  std::int64_t in_shard = 0;
  std::int64_t in_whole = 0;
  std::int64_t count = 0;
};

// In the order of the shard. Both lists rise.
std::vector<SharedIndexes> shared_indexes(std::span<const Split::Interval> shard,
                                          std::span<const Split::Interval> whole) {
  std::vector<SharedIndexes> shared;
  std::int64_t in_shard = 0;
  for (const Split::Interval& own : shard) {
    std::int64_t in_whole = 0;
    for (const Split::Interval& part : whole) {
      const std::int64_t begin = std::max(own.offset, part.offset);
      const std::int64_t count = std::min(own.offset + own.length, part.offset + part.length) - begin;
      const SharedIndexes next{in_shard + begin - own.offset, in_whole + begin - part.offset, count};
      in_whole += part.length;
      if (count <= 0) continue;
      if (!shared.empty() && shared.back().in_shard + shared.back().count == next.in_shard &&
          shared.back().in_whole + shared.back().count == next.in_whole)
        shared.back().count += count;
      else
        shared.push_back(next);
    }
    in_shard += own.length;
  }
  return shared;
}

void append(std::vector<ShardedParameter::Run>& runs, ShardedParameter::Run run) {
  if (!runs.empty() && runs.back().offset + runs.back().count == run.offset)
    runs.back().count += run.count;
  else
    runs.push_back(run);
}

// The runs of one member's shard in order, those that touch as one. With more than kRunsMax, not all of them.
std::vector<ShardedParameter::Run> runs_of(const Layout& layout, std::int64_t member, const Layout& whole,
                                           std::int64_t rank) {
  constexpr std::size_t kMost = ShardedParameter::kRunsMax;
  const Index shard_shape = layout.local_shape(member);
  const Index whole_shape = whole.local_shape(rank);
  std::array<std::vector<SharedIndexes>, MUSTER_TENSOR_DIMS_MAX> shared;
  Index stride{};       // in the whole tensor
  std::size_t row = 0;  // dims behind it are the same in both, so one index of it is one run
  std::int64_t elements = 1;
  for (std::size_t dim = layout.dims(); dim-- > 0; elements *= whole_shape[dim]) {
    shared[dim] = shared_indexes(layout.intervals(member, dim), whole.intervals(rank, dim));
    if (shared[dim].empty()) return {};
    stride[dim] = elements;
    if (shared[dim].front().count < std::max(shard_shape[dim], whole_shape[dim])) row = std::max(row, dim);
  }
  if (layout.dims() == 0) return {{0, 1}};
  // Each beginning is at least one run in the end.
  std::vector<std::int64_t> begins{0};
  for (std::size_t dim = 0; dim < row; ++dim) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t begin : begins)
      for (const SharedIndexes& each : shared[dim])
        for (std::int64_t i = 0; i < each.count && finer.size() <= kMost; ++i)
          finer.push_back(begin + (each.in_whole + i) * stride[dim]);
    begins = std::move(finer);
  }
  std::vector<ShardedParameter::Run> runs;
  for (const std::int64_t begin : begins)
    for (const SharedIndexes& each : shared[row]) {
      if (runs.size() > kMost) return runs;
      append(runs, {begin + each.in_whole * stride[row], each.count * stride[row]});
    }
  return runs;
}

// Whether no other axis cuts the dim after this one.
bool cuts_last(const Layout& layout, std::size_t axis) {
  const std::span<const Layout::Axis> axes = layout.axes();
  if (axes[axis].ranks == 1) return true;
  const auto later =
      layout.order() == Layout::Order::kInnermostFirst ? axes.first(axis) : axes.subspan(axis + 1);
  return std::ranges::none_of(later, [&](const Layout::Axis& other) {
    return other.ranks > 1 && other.placement.kind == Placement::Kind::kShard &&
           other.placement.dim == axes[axis].placement.dim;
  });
}

Result<Layout> replicated_along(const Layout& layout, std::size_t axis) {
  std::vector<Layout::Axis> axes(layout.axes().begin(), layout.axes().end());
  axes[axis].placement = Placement::replicate();
  return Layout::make(std::span(layout.shape()).first(layout.dims()), std::move(axes), layout.order());
}

}  // namespace

Result<ShardedParameter> ShardedParameter::make(Layout layout, std::size_t axis, std::int64_t rank) {
  if (axis >= layout.axes().size())
    return fail(Code::kBadArgument, "the unit is sharded along axis {}, but the layout has {} axes", axis,
                layout.axes().size());
  const Layout::Axis& along = layout.axes()[axis];
  if (along.placement.kind != Placement::Kind::kShard)
    return fail(Code::kBadArgument, "{} does not shard the tensor, but its unit is sharded along it",
                layout.axis_text(axis));
  const auto dim = static_cast<std::size_t>(along.placement.dim);
  if (dim != 0) {
    const std::int64_t length = layout.local_shape(rank)[dim] * along.ranks;
    bool even = true;
    for (std::int64_t other = 0; other < layout.ranks(); ++other)
      even = even && layout.local_shape(other)[dim] * along.ranks == length;
    if (!even)
      return fail(
          Code::kBadArgument,
          "{} ranks do not divide dim {} of the tensor {} evenly; a unit may shard unevenly in dim 0 alone",
          along.ranks, dim, to_text(std::span(layout.shape()).first(layout.dims())));
  }
  if (!cuts_last(layout, axis))
    return fail(
        Code::kBadArgument,
        "{} cuts dim {} before another axis does, so its shards do not make up what a rank has when it is "
        "whole; let it cut last (MUSTER_CUT_INNERMOST_FIRST, and this axis outermost)",
        layout.axis_text(axis), dim);
  MUSTER_ASSIGN_OR_RETURN(Layout whole, replicated_along(layout, axis));
  ShardedParameter parameter(std::move(layout), std::move(whole), rank);
  parameter.axis_ = axis;
  const Layout& shards = parameter.layout_;
  const std::int64_t first = rank - shards.coordinate(rank, axis) * shards.stride(axis);
  std::size_t count = 0;
  for (std::int64_t member = 0; member < along.ranks && count <= kRunsMax; ++member) {
    const std::int64_t other = first + member * shards.stride(axis);
    parameter.runs_.push_back(runs_of(shards, other, parameter.whole_, rank));
    count += parameter.runs_.back().size();
  }
  if (count > kRunsMax)
    return fail(
        Code::kNoResource,
        "the shards of the tensor {} lie in more than {} pieces, the most of one operation: shard dim 0",
        to_text(std::span(shards.shape()).first(shards.dims())), kRunsMax);
  return parameter;
}

ShardedParameter ShardedParameter::make_whole(Layout layout, std::int64_t rank) {
  Layout whole = layout;
  ShardedParameter parameter(std::move(layout), std::move(whole), rank);
  parameter.runs_.push_back({Run{0, parameter.whole_elements()}});
  return parameter;
}

bool ShardedParameter::has_other_shards() const {
  for (std::size_t i = 0; i < layout_.axes().size(); ++i)
    if (i != axis_ && layout_.axes()[i].ranks > 1 &&
        layout_.axes()[i].placement.kind == Placement::Kind::kShard)
      return true;
  return false;
}

}  // namespace muster::shard
