// Views of an array with ghosts: pure arithmetic on sizes.
#include "api/base/dtype.hpp"
#include "api/base/result.hpp"
#include "api/client/error.hpp"

#include <limits>

using muster::Code;
using muster::failure;
using muster::Status;

namespace {

constexpr std::int64_t kElementsMax = std::int64_t{1}
                                      << 48;  // more than any memory has, and no overflow below

std::int64_t rows_of(const muster_ghosted& g, int d) {
  return g.before[d] + g.own[d] + g.after[d];
}

Status check(const muster_ghosted* g) {
  if (g == nullptr) return failure(Code::kBadArgument, "ghosted must not be NULL");
  if (g->size != sizeof *g)
    return failure(Code::kBadArgument, "ghosted.size is {}; initialise it by MUSTER_GHOSTED_INIT ({})",
                   g->size, sizeof *g);
  if (muster_dtype_bytes(g->dtype) == 0)
    return failure(Code::kBadArgument, "dtype {} does not exist", g->dtype);
  if (g->dims < 1 || g->dims > MUSTER_TENSOR_DIMS_MAX || g->reserved != 0)
    return failure(Code::kBadArgument, "{} dims; 1 to {} are possible, and reserved is 0", g->dims,
                   MUSTER_TENSOR_DIMS_MAX);
  std::int64_t elements = 1;
  for (int d = 0; d < g->dims; ++d) {
    const auto fits = [](std::int64_t rows) { return rows >= 0 && rows < kElementsMax; };
    if (!fits(g->own[d]) || !fits(g->before[d]) || !fits(g->after[d]))
      return failure(Code::kBadArgument, "dim {}: own {}, before {}, after {}: each from 0 to 2^48", d,
                     g->own[d], g->before[d], g->after[d]);
    const std::int64_t rows = rows_of(*g, d);
    if (rows > 0 && elements > kElementsMax / rows)
      return failure(Code::kBadArgument, "dim {}: with {} rows the array has more than 2^48 elements", d,
                     rows);
    elements *= std::max<std::int64_t>(rows, 1);
  }
  return {};
}

// Which rows of `dim` the part is.
struct Rows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

Status check_part(const muster_ghosted& g, std::int32_t part, std::int32_t dim, std::int64_t rows) {
  if (part < MUSTER_GHOSTED_OWN || part > MUSTER_GHOSTED_LAST)
    return failure(Code::kBadArgument, "part {} is none of MUSTER_GHOSTED_OWN..LAST", part);
  if (part == MUSTER_GHOSTED_OWN) return {};
  if (dim < 0 || dim >= g.dims) return failure(Code::kBadArgument, "dim {} is not in 0..{}", dim, g.dims - 1);
  const std::int64_t most = part == MUSTER_GHOSTED_BEFORE  ? g.before[dim]
                            : part == MUSTER_GHOSTED_AFTER ? g.after[dim]
                                                           : g.own[dim];
  if (rows < 0 || rows > most)
    return failure(Code::kBadArgument, "rows {} of dim {} are not in 0..{}", rows, dim, most);
  return {};
}

Rows rows_of_part(const muster_ghosted& g, std::int32_t part, std::int32_t dim, std::int64_t rows) {
  const std::int64_t begin = g.before[dim];
  const std::int64_t end = begin + g.own[dim];
  switch (part) {
    case MUSTER_GHOSTED_BEFORE:
      return {begin - rows, rows};
    case MUSTER_GHOSTED_AFTER:
      return {end, rows};
    case MUSTER_GHOSTED_FIRST:
      return {begin, rows};
    default:
      return {end - rows, rows};
  }
}

Status view_of(const muster_ghosted& g, muster_range start, std::int32_t part, std::int32_t dim,
               std::int64_t rows, std::uint32_t with_ghosts, muster_tensor* view) {
  MUSTER_RETURN_IF_ERROR(check_part(g, part, dim, rows));
  if (with_ghosts >= 1u << g.dims)
    return failure(Code::kBadArgument, "with_ghosts 0x{:x} names dims beyond the {}", with_ghosts, g.dims);
  *view = muster_tensor{start.buffer, start.offset_bytes, g.dtype, g.dims, {0}, {0}};
  std::int64_t stride = 1;
  std::int64_t offset = 0;
  for (int d = g.dims - 1; d >= 0; --d) {
    Rows these{g.before[d], g.own[d]};
    if ((with_ghosts >> d & 1) != 0) these = {0, rows_of(g, d)};
    if (part != MUSTER_GHOSTED_OWN && d == dim) these = rows_of_part(g, part, dim, rows);
    view->size[d] = these.count;
    view->stride[d] = stride;
    offset += these.first * stride;
    stride *= std::max<std::int64_t>(rows_of(g, d), 1);
  }
  view->offset_bytes += static_cast<std::uint64_t>(offset) * muster_dtype_bytes(g.dtype);
  return {};
}

}  // namespace

extern "C" {

muster_status_t muster_ghosted_bytes(const muster_ghosted* ghosted, uint64_t* bytes) {
  return muster::client::guarded([&]() -> Status {
    if (bytes == nullptr) return failure(Code::kBadArgument, "bytes must not be NULL");
    MUSTER_RETURN_IF_ERROR(check(ghosted));
    *bytes = muster_dtype_bytes(ghosted->dtype);
    for (int d = 0; d < ghosted->dims; ++d) *bytes *= static_cast<std::uint64_t>(rows_of(*ghosted, d));
    return {};
  });
}

muster_status_t muster_ghosted_view(const muster_ghosted* ghosted, muster_range start, int32_t part,
                                    int32_t dim, int64_t rows, uint32_t with_ghosts, muster_tensor* view) {
  return muster::client::guarded([&]() -> Status {
    if (view == nullptr) return failure(Code::kBadArgument, "view must not be NULL");
    MUSTER_RETURN_IF_ERROR(check(ghosted));
    return view_of(*ghosted, start, part, dim, rows, with_ghosts, view);
  });
}
}
