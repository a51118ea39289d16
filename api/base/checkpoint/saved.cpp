#include "api/base/checkpoint/saved.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

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

Status check_pairs(const SavedTensor& tensor, std::span<const Box*> boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (overlap(*boxes[j], *boxes[i]))
        return failure(Code::kBadArgument, "{}: the boxes {} and {} overlap", tensor_text(tensor.name),
                       text_of(*boxes[j]), text_of(*boxes[i]));
  return {};
}

// Cuts the boxes into groups at each place along one dim that no box crosses, and each group along the next
// dim. Boxes of two groups cannot overlap. A mesh's boxes separate into single ones; boxes that do not
// separate are compared in pairs. The steps have a bound, because boxes of a foreign checkpoint may take long
// either way.
Status check_disjoint(const SavedTensor& tensor) {
  struct Group {  // of boxes that may overlap
    std::span<const Box*> boxes;
    std::size_t along = 0;
    std::size_t tried = 0;  // how many dims in a row have separated none of them
  };
  std::vector<const Box*> order;
  for (const SavedBox& saved : tensor.boxes) order.push_back(&saved.box);
  std::uint64_t steps_left = (std::uint64_t{1} << 20) + 64 * order.size();
  std::vector<Group> groups{{order, 0, 0}};
  while (!groups.empty()) {
    const Group group = groups.back();
    groups.pop_back();
    const std::uint64_t size = group.boxes.size();
    if (size < 2) continue;
    const bool alone = group.tried == tensor.dims;
    const std::uint64_t steps = alone ? size * (size - 1) / 2 : size;
    if (steps > steps_left)
      return failure(Code::kBadArgument, "{} is cut into {} boxes in no order; cut it along its dims",
                     tensor_text(tensor.name), tensor.boxes.size());
    steps_left -= steps;
    if (alone) {
      MUSTER_RETURN_IF_ERROR(check_pairs(tensor, group.boxes));
      continue;
    }
    const std::size_t along = group.along, next = (along + 1) % tensor.dims;
    std::ranges::sort(group.boxes, {}, [along](const Box* box) { return box->offset[along]; });
    std::int64_t end = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i <= size; ++i) {
      if (i == size || (i > first && group.boxes[i]->offset[along] >= end)) {
        groups.push_back(
            {group.boxes.subspan(first, i - first), next, i - first == size ? group.tried + 1 : 1});
        first = i;
      }
      if (i < size) end = std::max(end, group.boxes[i]->offset[along] + group.boxes[i]->length[along]);
    }
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
                         [](std::uint64_t sum, const File& file) { return sum + file.bytes; });
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
