#include "api/base/shard/runs.hpp"

#include <algorithm>
#include <utility>

namespace muster::shard {
namespace {

// A run, and its place in the shard.
struct PlacedRun {
  std::int64_t at = 0;
  ElementRun run;
};

std::int64_t flat(const Index& index, const Index& shape, std::size_t dims) {
  std::int64_t position = 0;
  for (std::size_t dim = 0; dim < dims; ++dim) position = position * shape[dim] + index[dim];
  return position;
}

// Adds what two blocks of the tensor have in common, row by row. Rows that are whole in both arrays are one.
void add_common(const Layout::Piece& shard, const Index& shard_shape, const Layout::Piece& whole,
                const Index& whole_shape, std::size_t dims, std::vector<PlacedRun>& placed) {
  Index in_shard{};
  Index in_whole{};
  Index length{};
  for (std::size_t dim = 0; dim < dims; ++dim) {
    const std::int64_t begin = std::max(shard.box.offset[dim], whole.box.offset[dim]);
    const std::int64_t end = std::min(shard.box.offset[dim] + shard.box.length[dim],
                                      whole.box.offset[dim] + whole.box.length[dim]);
    if (begin >= end) return;
    length[dim] = end - begin;
    in_shard[dim] = shard.at[dim] + begin - shard.box.offset[dim];
    in_whole[dim] = whole.at[dim] + begin - whole.box.offset[dim];
  }
  // Dims [rows, dims) of one row are contiguous in both.
  std::size_t rows = dims;
  std::int64_t count = 1;
  while (rows > 0) {
    --rows;
    count *= length[rows];
    if (length[rows] != shard_shape[rows] || length[rows] != whole_shape[rows]) break;
  }
  Index step{};
  for (bool more = true; more;) {
    Index a = in_shard;
    Index b = in_whole;
    for (std::size_t dim = 0; dim < rows; ++dim) a[dim] += step[dim], b[dim] += step[dim];
    placed.push_back({flat(a, shard_shape, dims), {flat(b, whole_shape, dims), count}});
    more = false;
    for (std::size_t dim = rows; dim-- > 0 && !more;) {
      more = ++step[dim] < length[dim];
      if (!more) step[dim] = 0;
    }
  }
}

// The runs of one member's shard in order, those that touch as one.
std::vector<ElementRun> runs_of(const Layout& layout, std::int64_t member, const Layout& whole,
                                std::int64_t rank) {
  const Index shard_shape = layout.local_shape(member);
  const Index whole_shape = whole.local_shape(rank);
  std::vector<PlacedRun> placed;
  const std::vector<Layout::Piece> parts = whole.pieces(rank);
  for (const Layout::Piece& shard : layout.pieces(member))
    for (const Layout::Piece& part : parts)
      add_common(shard, shard_shape, part, whole_shape, layout.dims(), placed);
  std::ranges::sort(placed, {}, &PlacedRun::at);
  std::vector<ElementRun> runs;
  for (const PlacedRun& next : placed) {
    if (!runs.empty() && runs.back().offset + runs.back().count == next.run.offset)
      runs.back().count += next.run.count;
    else
      runs.push_back(next.run);
  }
  return runs;
}

// Whether no other axis cuts the dim after this one.
bool cuts_last(const Layout& layout, std::size_t axis) {
  const std::span<const MeshAxis> axes = layout.axes();
  if (axes[axis].ranks == 1) return true;
  const auto later =
      layout.order() == ShardOrder::kInnermostFirst ? axes.first(axis) : axes.subspan(axis + 1);
  return std::ranges::none_of(later, [&](const MeshAxis& other) {
    return other.ranks > 1 && other.placement.kind == PlacementKind::kShard &&
           other.placement.dim == axes[axis].placement.dim;
  });
}

Result<Layout> replicated_along(const Layout& layout, std::size_t axis) {
  std::vector<MeshAxis> axes(layout.axes().begin(), layout.axes().end());
  axes[axis].placement = Placement::replicate();
  return Layout::make(std::span(layout.shape()).first(layout.dims()), std::move(axes), layout.order());
}

}  // namespace

Result<ShardedParameter> ShardedParameter::make(Layout layout, std::size_t axis, std::int64_t rank) {
  if (axis >= layout.axes().size())
    return fail(Code::kBadArgument, "the unit is sharded along axis {}, but the layout has {} axes", axis,
                layout.axes().size());
  const MeshAxis& along = layout.axes()[axis];
  if (along.placement.kind != PlacementKind::kShard)
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
  for (std::int64_t member = 0; member < along.ranks; ++member) {
    const std::int64_t other = first + member * shards.stride(axis);
    parameter.runs_.push_back(runs_of(shards, other, parameter.whole_, rank));
    count += parameter.runs_.back().size();
  }
  if (count > kRunsMax)
    return fail(Code::kNoResource,
                "the shards of the tensor {} lie in {} pieces, and one operation has at most {}: shard dim 0",
                to_text(std::span(shards.shape()).first(shards.dims())), count, kRunsMax);
  return parameter;
}

ShardedParameter ShardedParameter::make_whole(Layout layout, std::int64_t rank) {
  Layout whole = layout;
  ShardedParameter parameter(std::move(layout), std::move(whole), rank);
  parameter.runs_.push_back({ElementRun{0, parameter.whole_elements()}});
  return parameter;
}

bool ShardedParameter::has_other_shards() const {
  for (std::size_t i = 0; i < layout_.axes().size(); ++i)
    if (i != axis_ && layout_.axes()[i].ranks > 1 &&
        layout_.axes()[i].placement.kind == PlacementKind::kShard)
      return true;
  return false;
}

}  // namespace muster::shard
