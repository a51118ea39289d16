#include "kernels/math/strided.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace muster::math {
namespace {

constexpr int kDims = MUSTER_TENSOR_DIMS_MAX;

// A place in a view, moving forward in row-major order. Dims that lie end to end are taken for one, so that a contiguous view
// is a single run.
class Cursor {
 public:
  Cursor(const Face& view, std::size_t element, std::uint64_t first) : element_(element), at_(view.data) {
    for (int d = view.dims - 1; d >= 0; --d) {
      const auto k = static_cast<std::size_t>(d);
      if (view.size[k] == 1) continue;
      const auto size = static_cast<std::uint64_t>(view.size[k]);
      if (dims_ > 0 && view.stride[k] == stride_[dims_ - 1] * static_cast<std::int64_t>(size_[dims_ - 1])) {
        size_[dims_ - 1] *= size;
      } else {
        size_[dims_] = size;
        stride_[dims_] = view.stride[k];
        ++dims_;
      }
    }
    if (dims_ == 0) dims_ = 1;  // one element
    for (std::size_t d = 0; d < dims_; ++d) {
      index_[d] = first % size_[d];
      first /= size_[d];
      at_ += static_cast<std::ptrdiff_t>(index_[d]) * step(d);
    }
  }

  std::byte* at() const { return at_; }
  std::uint64_t run() const { return size_[0] - index_[0]; }
  std::ptrdiff_t step(std::size_t d = 0) const { return static_cast<std::ptrdiff_t>(stride_[d]) * static_cast<std::ptrdiff_t>(element_); }

  // At most run().
  void advance(std::uint64_t count) {
    index_[0] += count;
    at_ += static_cast<std::ptrdiff_t>(count) * step();
    for (std::size_t d = 0; index_[d] == size_[d] && d + 1 < dims_; ++d) {
      at_ -= static_cast<std::ptrdiff_t>(size_[d]) * step(d);
      index_[d] = 0;
      ++index_[d + 1];
      at_ += step(d + 1);
    }
  }

 private:
  std::size_t element_;
  std::byte* at_;
  std::size_t dims_ = 0;  // innermost first
  std::array<std::uint64_t, kDims> size_{1, 1, 1, 1};
  std::array<std::int64_t, kDims> stride_{1, 1, 1, 1};
  std::array<std::uint64_t, kDims> index_{};
};

template<std::size_t kElement>
void copy_run(std::byte* to, std::ptrdiff_t to_step, const std::byte* from, std::ptrdiff_t from_step, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to, from, kElement);
    to += to_step;
    from += from_step;
  }
}

void copy_run(const Cursor& to, const Cursor& from, std::size_t element, std::uint64_t count) {
  const auto unit = static_cast<std::ptrdiff_t>(element);
  if (count == 1 || (to.step() == unit && from.step() == unit)) {
    std::memcpy(to.at(), from.at(), count * element);
    return;
  }
  switch (element) {
    case 1:
      return copy_run<1>(to.at(), to.step(), from.at(), from.step(), count);
    case 2:
      return copy_run<2>(to.at(), to.step(), from.at(), from.step(), count);
    case 4:
      return copy_run<4>(to.at(), to.step(), from.at(), from.step(), count);
    default:
      MUSTER_ASSERT(element == 8);
      return copy_run<8>(to.at(), to.step(), from.at(), from.step(), count);
  }
}

}  // namespace

void copy_face(const Face& target, const Face& source, std::size_t element_bytes, std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  Cursor to(target, element_bytes, first);
  Cursor from(source, element_bytes, first);
  while (count > 0) {
    const std::uint64_t run = std::min({count, to.run(), from.run()});
    copy_run(to, from, element_bytes, run);
    to.advance(run);
    from.advance(run);
    count -= run;
  }
}

}  // namespace muster::math
