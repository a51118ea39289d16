#include "api/client/check/field_boxes.hpp"

#include "api/base/dtype.hpp"
#include "api/base/halo/window.hpp"

#include <algorithm>
#include <cstddef>

namespace muster::client {
namespace {

using halo::Extent;
using halo::Window;

// The results that read one of the items; windows of later results begin and end later.
Extent results_that_read(const Window& window, const Extent& items, std::int64_t all_items) {
  const std::int64_t all = window.results(all_items);
  const auto first_for = [all](auto holds) {
    std::int64_t low = 0, high = all;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (holds(middle))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  const auto reads = [&](std::int64_t result) { return window.reads({result, result + 1}, all_items); };
  return {first_for([&](std::int64_t result) { return reads(result).end > items.begin; }),
          first_for([&](std::int64_t result) { return reads(result).begin >= items.end; })};
}

// The numbers of one spatial dim, as field_kernels.h lists them behind the first two.
class FieldDim {
 public:
  FieldDim(const muster_kernel& kernel, std::int32_t dim)
      : kernel_(kernel), dim_(dim), convolves_(kernel.op < MUSTER_KERNEL_GROUP_NORM_STATISTICS) {}

  Extent box() const {
    return {number(convolves_ ? 5 : 4), number(convolves_ ? 5 : 4) + number(convolves_ ? 6 : 5)};
  }
  std::int64_t x_offset() const { return number(convolves_ ? 3 : 2); }
  std::int64_t y_offset() const { return number(convolves_ ? 4 : 3); }

  Extent items_of(const Extent& results) const {
    if (results.length() == 0) return {};
    if (!convolves_) return window().reads(results, number(0));
    return {results.begin * stride() - before(), (results.end - 1) * stride() - before() + span()};
  }
  Extent results_of(const Extent& items) const {
    if (items.length() == 0) return {};
    if (!convolves_) return results_that_read(window(), items, number(0));
    return {halo::ceil_divided(items.begin + before() - span() + 1, stride()),
            halo::floor_divided(items.end - 1 + before(), stride()) + 1};
  }
  bool makes_sense() const {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;  // so that no sum or product here overflows
    for (int list = 0; list < (convolves_ ? 7 : 6); ++list)
      if (number(list) < -kMost || number(list) > kMost) return false;
    if (convolves_) return stride() > 0 && stride() < kStepMax && number(1) > 0 && number(1) < kStepMax;
    return kernel_.ints[0] >= kNearest && kernel_.ints[0] <= kLinearAligned && window().check(number(0)).ok();
  }

 private:
  static constexpr std::int64_t kStepMax = 1 << 20;
  // The modes of an interpolation are the numbers of halo.h, and those of Window::Kind.
  static constexpr auto kNearest = static_cast<std::int64_t>(Window::Kind::kNearest);
  static constexpr auto kLinearAligned = static_cast<std::int64_t>(Window::Kind::kLinearAligned);
  std::int64_t number(int list) const { return kernel_.ints[2 + 3 * list + dim_]; }
  std::int64_t stride() const { return number(0); }
  std::int64_t before() const { return number(2); }
  std::int64_t span() const {
    const std::uint32_t weights = kernel_.op == MUSTER_KERNEL_CONVOLUTION_WGRAD ? 2 : 1;
    return number(1) * (kernel_.tensors[weights].size[1 + dim_] - 1) + 1;
  }
  Window window() const {
    Window window;
    window.kind = static_cast<Window::Kind>(kernel_.ints[0]);
    window.length = number(1);
    window.scale = kernel_.reals[dim_];
    return window;
  }

  const muster_kernel& kernel_;
  std::int32_t dim_;
  bool convolves_;
};

enum class Role : std::uint8_t { kNone, kItems, kResults };

Role role_of(std::int32_t op, std::uint32_t operand) {
  switch (op) {
    case MUSTER_KERNEL_CONVOLUTION_FORWARD:
      return operand == 0 ? Role::kItems : operand == 3 ? Role::kResults : Role::kNone;
    case MUSTER_KERNEL_CONVOLUTION_DGRAD:
      return operand == 0 ? Role::kResults : operand == 2 ? Role::kItems : Role::kNone;
    case MUSTER_KERNEL_CONVOLUTION_WGRAD:
      return operand == 0 ? Role::kResults : operand == 1 ? Role::kItems : Role::kNone;
    case MUSTER_KERNEL_INTERPOLATE_FORWARD:
      return operand == 0 ? Role::kItems : Role::kResults;
    case MUSTER_KERNEL_INTERPOLATE_BACKWARD:
      return operand == 0 ? Role::kResults : Role::kItems;
    default:
      return Role::kNone;
  }
}

bool box_is_of_items(std::int32_t op) {
  return op == MUSTER_KERNEL_CONVOLUTION_DGRAD || op == MUSTER_KERNEL_INTERPOLATE_BACKWARD;
}

}  // namespace

muster_tensor used_part(const muster_kernel& kernel, std::uint32_t operand) {
  muster_tensor view = kernel.tensors[operand];
  const Role role = role_of(kernel.op, operand);
  if (role == Role::kNone || view.dims < 3 || view.dims > 5) return view;
  for (std::int32_t d = 0; d < view.dims - 2; ++d) {
    const FieldDim dim(kernel, d);
    if (!dim.makes_sense()) return kernel.tensors[operand];
    const bool of_items = box_is_of_items(kernel.op);
    Extent used = dim.box();
    if (role == Role::kItems && !of_items) used = dim.items_of(used);
    if (role == Role::kResults && of_items) used = dim.results_of(used);
    const std::int64_t first = role == Role::kItems ? dim.x_offset() : dim.y_offset();
    const std::int64_t size = view.size[d + 1];
    const std::int64_t begin = std::clamp<std::int64_t>(used.begin - first, 0, size);
    const std::int64_t end = std::clamp<std::int64_t>(used.end - first, begin, size);
    view.offset_bytes += static_cast<std::uint64_t>(begin * view.stride[d + 1]) * dtype_bytes(view.dtype);
    view.size[d + 1] = end - begin;
  }
  return view;
}

}  // namespace muster::client
