#include "api/base/checkpoint/read_plan.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <tuple>

namespace muster::checkpoint {
namespace {

// The intersection of a saved box and a piece. If it is empty, some length is 0.
Slice slice_of(const Box& saved, const Layout::Piece& piece) {
  Slice slice;
  slice.part.dims = saved.dims;
  for (std::size_t dim = 0; dim < saved.dims; ++dim) {
    const std::int64_t first = std::max(saved.offset[dim], piece.box.offset[dim]);
    const std::int64_t end =
        std::min(saved.offset[dim] + saved.length[dim], piece.box.offset[dim] + piece.box.length[dim]);
    slice.part.offset[dim] = first;
    slice.part.length[dim] = std::max<std::int64_t>(0, end - first);
    slice.within[dim] = first - saved.offset[dim];
    slice.put[dim] = piece.at[dim] + first - piece.box.offset[dim];
  }
  return slice;
}

}  // namespace

std::vector<Slice> plan_read(const SavedTensor& saved, std::span<const Layout::Piece> pieces) {
  std::vector<Slice> slices;
  for (const Layout::Piece& piece : pieces) {
    for (std::size_t i = 0; i < saved.boxes.size(); ++i) {
      Slice slice = slice_of(saved.boxes[i].box, piece);
      if (slice.part.elements() == 0) continue;
      slice.box = i;
      slices.push_back(slice);
    }
  }
  std::ranges::stable_sort(slices, {}, [&](const Slice& slice) {
    const SavedBox& box = saved.boxes[slice.box];
    return std::tuple(box.file, box.at);
  });
  return slices;
}

Status check_same(const SavedTensor& saved, muster_dtype dtype, std::span<const std::int64_t> shape) {
  if (saved.dtype != dtype)
    return failure(Code::kBadArgument, "{} is saved as {}, but the array has dtype {}",
                   tensor_text(saved.name), dtype_name(saved.dtype), dtype_name(dtype));
  if (std::ranges::equal(saved.extent(), shape)) return {};
  return failure(Code::kBadArgument, "{} is saved with shape {}, but the layout has shape {}",
                 tensor_text(saved.name), to_text(saved.extent()), to_text(shape));
}

}  // namespace muster::checkpoint
