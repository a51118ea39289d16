#include "api/base/checkpoint/saved.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace muster::checkpoint {
namespace {

std::string text_of(const Box& box) {
  const auto part = [&](const Index& index) { return to_text(std::span(index).first(box.dims)); };
  return fmt::format("{} at {}", part(box.length), part(box.offset));
}

Status check_place(const SavedTensor& tensor, const Box& box) {
  bool inside = box.dims == tensor.dims;
  for (std::size_t dim = 0; inside && dim < tensor.dims; ++dim)
    inside = box.offset[dim] >= 0 && box.length[dim] >= 1 && box.length[dim] <= tensor.shape[dim] &&
             box.offset[dim] <= tensor.shape[dim] - box.length[dim];
  if (inside) return {};
  return failure(Code::kBadArgument, "{}: the box {} is empty, or not in its shape {}",
                 tensor_text(tensor.name), text_of(box), to_text(tensor.extent()));
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.dims; ++dim)
    if (a.offset[dim] >= b.offset[dim] + b.length[dim] || b.offset[dim] >= a.offset[dim] + a.length[dim])
      return false;
  return true;
}

// The dim in which boxes begin at the most places: a sweep along it has the fewest side by side.
std::size_t sweep_dim(const SavedTensor& tensor) {
  std::size_t best = 0, most = 0;
  for (std::size_t dim = 0; dim < tensor.dims; ++dim) {
    std::set<std::int64_t> places;
    for (const SavedBox& saved : tensor.boxes) places.insert(saved.box.offset[dim]);
    if (places.size() > most) {
      best = dim;
      most = places.size();
    }
  }
  return best;
}

Status check_disjoint(const SavedTensor& tensor) {
  const std::size_t along = sweep_dim(tensor);
  std::vector<const Box*> order;
  for (const SavedBox& saved : tensor.boxes) order.push_back(&saved.box);
  if (tensor.dims > 0) std::ranges::sort(order, {}, [along](const Box* box) { return box->offset[along]; });
  std::vector<const Box*> open;  // those that have not ended where the sweep stands
  for (const Box* box : order) {
    if (tensor.dims > 0)
      std::erase_if(open, [&](const Box* other) {
        return other->offset[along] + other->length[along] <= box->offset[along];
      });
    for (const Box* other : open)
      if (overlap(*box, *other))
        return failure(Code::kBadArgument, "{}: the boxes {} and {} overlap", tensor_text(tensor.name),
                       text_of(*other), text_of(*box));
    open.push_back(box);
  }
  return {};
}

}  // namespace

const SavedTensor* CheckpointRecord::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &SavedTensor::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t CheckpointRecord::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const SavedFile& file) { return sum + file.bytes; });
}

Result<std::uint64_t> bytes_of(const SavedTensor& tensor) {
  const std::uint64_t element = dtype_bytes(tensor.dtype);
  if (element == 0)
    return fail(Code::kBadArgument, "{} has dtype {}, which is none", tensor_text(tensor.name), tensor.dtype);
  if (tensor.dims > std::size_t{MUSTER_TENSOR_DIMS_MAX})
    return fail(Code::kBadArgument, "{} has {} dims; at most {} are possible", tensor_text(tensor.name),
                tensor.dims, MUSTER_TENSOR_DIMS_MAX);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bytes = element;
  bool empty = false;
  for (std::size_t dim = 0; dim < tensor.dims; ++dim) {
    const std::int64_t length = tensor.shape[dim];
    if (length < 0)
      return fail(Code::kBadArgument, "{} has the length {} in dim {}", tensor_text(tensor.name), length,
                  dim);
    empty = empty || length == 0;
    const std::uint64_t factor = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(length));
    if (factor > kMost / bytes)
      return fail(Code::kBadArgument, "{} of shape {} has 2^63 bytes or more", tensor_text(tensor.name),
                  to_text(tensor.extent()));
    bytes *= factor;
  }
  return empty ? 0 : bytes;
}

std::uint64_t bytes_of(const Box& box, muster_dtype dtype) {
  return static_cast<std::uint64_t>(box.elements()) * dtype_bytes(dtype);
}

Status check_boxes(const SavedTensor& tensor) {
  if (tensor.boxes.size() > kBoxesMax)
    return failure(Code::kBadArgument, "{} is cut into {} boxes; at most {} are possible",
                   tensor_text(tensor.name), tensor.boxes.size(), kBoxesMax);
  for (const SavedBox& saved : tensor.boxes) MUSTER_RETURN_IF_ERROR(check_place(tensor, saved.box));
  MUSTER_RETURN_IF_ERROR(check_disjoint(tensor));
  // They are apart and inside, so their sum is at most the tensor's elements.
  std::int64_t elements = 0;
  for (const SavedBox& saved : tensor.boxes) elements += saved.box.elements();
  const std::int64_t all = Box{tensor.dims, {}, tensor.shape}.elements();
  if (elements == all) return {};
  return failure(Code::kBadArgument,
                 "{} of shape {} has {} elements, but its boxes have {}: a part is missing",
                 tensor_text(tensor.name), to_text(tensor.extent()), all, elements);
}

}  // namespace muster::checkpoint
