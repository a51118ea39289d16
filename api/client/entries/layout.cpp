// Layouts of the C API.
#include "api/base/layout/layout.hpp"
#include "api/client/error.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/session/mesh_axes.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <muster/layouts.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Layout;
using Axis = muster::Layout::Axis;
using muster::Placement;
using muster::Result;
using muster::Split;
using muster::Status;
using muster::client::guarded;

namespace {

static_assert(MUSTER_LAYOUT_AXES_MAX == Layout::kAxesMax);

Status check_none(std::size_t i, const char* field, bool given, const char* owner) {
  if (!given) return {};
  return failure(Code::kBadArgument, "axes[{}].{} is given, but only {} uses it; leave it 0", i, field,
                 owner);
}

// Refuses fields that the axis does not use: they were meant for something else.
Status check_unused(const muster_layout_axis& axis, std::size_t i) {
  const bool shard = axis.placement == MUSTER_SHARD;
  MUSTER_RETURN_IF_ERROR(check_none(i, "dim", !shard && axis.dim != 0, "MUSTER_SHARD"));
  MUSTER_RETURN_IF_ERROR(check_none(i, "split", !shard && axis.split != 0, "MUSTER_SHARD"));
  MUSTER_RETURN_IF_ERROR(
      check_none(i, "fused", !shard && (axis.fused != nullptr || axis.fused_count != 0), "MUSTER_SHARD"));
  MUSTER_RETURN_IF_ERROR(
      check_none(i, "redop", axis.placement != MUSTER_PARTIAL && axis.redop != 0, "MUSTER_PARTIAL"));
  MUSTER_RETURN_IF_ERROR(
      check_none(i, "grain", axis.split != MUSTER_SPLIT_ALIGNED && axis.grain != 0, "MUSTER_SPLIT_ALIGNED"));
  const bool lengths = axis.lengths != nullptr || axis.length_count != 0;
  MUSTER_RETURN_IF_ERROR(
      check_none(i, "lengths", axis.split != MUSTER_SPLIT_GIVEN && lengths, "MUSTER_SPLIT_GIVEN"));
  return check_none(i, "reserved", axis.reserved != 0, "a later version");
}

Result<std::vector<std::int64_t>> list_of(const std::int64_t* list, std::uint32_t count, std::size_t i,
                                          const char* field) {
  if (list == nullptr && count > 0)
    return fail(Code::kBadArgument, "axes[{}].{} is NULL, but it has {} entries", i, field, count);
  return std::vector<std::int64_t>(list, list + count);
}

Result<Split> split_of(const muster_layout_axis& axis, std::size_t i) {
  if (axis.split < MUSTER_SPLIT_CEIL || axis.split > MUSTER_SPLIT_GIVEN)
    return fail(Code::kBadArgument, "axes[{}].split is {}, which is none of MUSTER_SPLIT_CEIL..GIVEN", i,
                axis.split);
  MUSTER_ASSIGN_OR_RETURN(auto lengths, list_of(axis.lengths, axis.length_count, i, "lengths"));
  MUSTER_ASSIGN_OR_RETURN(auto fused, list_of(axis.fused, axis.fused_count, i, "fused"));
  Split split = axis.split == MUSTER_SPLIT_CEIL       ? Split::ceil()
                : axis.split == MUSTER_SPLIT_BALANCED ? Split::balanced()
                : axis.split == MUSTER_SPLIT_ALIGNED  ? Split::aligned(axis.grain)
                                                      : Split::given(std::move(lengths));
  if (axis.fused == nullptr) return split;
  return Split::fused(std::move(split), std::move(fused));
}

Result<Placement> placement_of(const muster_layout_axis& axis, std::size_t i) {
  switch (axis.placement) {
    case MUSTER_REPLICATE:
      return Placement::replicate();
    case MUSTER_SHARD: {
      MUSTER_ASSIGN_OR_RETURN(Split split, split_of(axis, i));
      return Placement::shard(axis.dim, std::move(split));
    }
    case MUSTER_PARTIAL:
      return Placement::partial(axis.redop);
    default:
      return fail(Code::kBadArgument, "axes[{}].placement is {}, which is none of MUSTER_REPLICATE..PARTIAL",
                  i, axis.placement);
  }
}

// The number of ranks of the axis: as given, or as the session's mesh has along its name.
Result<std::int64_t> ranks_of(muster_session* session, const muster_layout_axis& axis, std::size_t i) {
  if (axis.ranks != 0) return axis.ranks;
  if (axis.name == nullptr)
    return fail(Code::kBadArgument, "axes[{}] has neither ranks nor the name of a dim of the mesh", i);
  if (session == nullptr)
    return fail(Code::kBadArgument, "axes[{}] takes its ranks from the mesh ({}), but there is no session", i,
                axis.name);
  std::int32_t ranks = 0;
  const muster_status_t code = muster_mesh_coords(session, axis.name, nullptr, &ranks);
  if (code == MUSTER_OK) return ranks;
  return fail(static_cast<Code>(code), "axes[{}].name: {}", i, muster_last_error());
}

Result<Axis> axis_of(muster_session* session, const muster_layout_axis& said, std::size_t i) {
  MUSTER_ASSIGN_OR_RETURN(Placement placement, placement_of(said, i));
  MUSTER_RETURN_IF_ERROR(check_unused(said, i));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t ranks, ranks_of(session, said, i));
  return Axis{said.name == nullptr ? "" : said.name, ranks, std::move(placement)};
}

Result<Layout> layout_of(muster_session* session, const muster_layout_options& said) {
  if (said.size != sizeof said)
    return fail(Code::kBadArgument,
                "muster_layout_options has size {}; initialise it with its _INIT macro ({})", said.size,
                sizeof said);
  if (said.dims < 0 || said.dims > MUSTER_TENSOR_DIMS_MAX)
    return fail(Code::kBadArgument, "dims is {}; 0 to {} are possible", said.dims, MUSTER_TENSOR_DIMS_MAX);
  if (said.axis_count > MUSTER_LAYOUT_AXES_MAX)
    return fail(Code::kBadArgument, "axis_count is {}; at most {} are possible", said.axis_count,
                MUSTER_LAYOUT_AXES_MAX);
  if (said.order != MUSTER_CUT_INNERMOST_FIRST && said.order != MUSTER_CUT_OUTERMOST_FIRST)
    return fail(Code::kBadArgument,
                "order is {}, which is none of MUSTER_CUT_INNERMOST_FIRST and OUTERMOST_FIRST", said.order);
  std::vector<Axis> axes;
  std::vector<muster::client::NamedAxis> names;
  for (std::size_t i = 0; i < said.axis_count; ++i) {
    MUSTER_ASSIGN_OR_RETURN(Axis axis, axis_of(session, said.axes[i], i));
    axes.push_back(std::move(axis));
    names.push_back({said.axes[i].name, said.axes[i].ranks == 0});
  }
  MUSTER_RETURN_IF_ERROR(muster::client::check_apart(session, names));
  return Layout::make(std::span(said.shape, static_cast<std::size_t>(said.dims)), std::move(axes),
                      said.order == MUSTER_CUT_OUTERMOST_FIRST ? muster::Layout::Order::kOutermostFirst
                                                               : muster::Layout::Order::kInnermostFirst);
}

Status check_rank(const muster_layout* layout, std::int32_t rank) {
  if (layout == nullptr) return failure(Code::kBadArgument, "layout must not be NULL");
  const std::int64_t ranks = layout->layout.ranks();
  if (rank >= 0 && rank < ranks) return {};
  return failure(Code::kBadArgument, "rank {} is not in the layout's 0..{}", rank, ranks - 1);
}

void copy(const muster::Index& index, std::int64_t* to) {
  std::copy(index.begin(), index.end(), to);
}

}  // namespace

extern "C" {

muster_status_t muster_layout_create(muster_session* session, const muster_layout_options* options,
                                     muster_layout** layout) {
  if (layout != nullptr) *layout = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"options", options}, {"layout", layout}}));
    MUSTER_ASSIGN_OR_RETURN(auto made, layout_of(session, *options));
    *layout = new muster_layout{std::move(made)};
    return {};
  });
}

muster_status_t muster_layout_destroy(muster_layout* layout) {
  delete layout;
  return MUSTER_OK;
}

muster_status_t muster_layout_ranks(const muster_layout* layout, int32_t* ranks) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"layout", layout}, {"ranks", ranks}}));
    *ranks = static_cast<std::int32_t>(layout->layout.ranks());
    return {};
  });
}

muster_status_t muster_layout_local_shape(const muster_layout* layout, int32_t rank, int64_t* shape) {
  return guarded([&]() -> Status {
    if (shape == nullptr) return failure(Code::kBadArgument, "shape must not be NULL");
    MUSTER_RETURN_IF_ERROR(check_rank(layout, rank));
    copy(layout->layout.local_shape(rank), shape);
    return {};
  });
}

muster_status_t muster_layout_boxes(const muster_layout* layout, int32_t rank, muster_box* boxes,
                                    size_t capacity, size_t* count) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"count", count}}));
    if (boxes == nullptr && capacity > 0)
      return failure(Code::kBadArgument, "boxes is NULL, but capacity is {}", capacity);
    MUSTER_RETURN_IF_ERROR(check_rank(layout, rank));
    const std::vector<Layout::Piece> found = layout->layout.pieces(rank);
    *count = found.size();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      copy(found[i].box.offset, boxes[i].offset);
      copy(found[i].box.length, boxes[i].length);
      copy(found[i].at, boxes[i].at);
    }
    return {};
  });
}
}
