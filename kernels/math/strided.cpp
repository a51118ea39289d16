#include "kernels/math/strided.hpp"

#include "kernels/math/copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace muster::math {
namespace {

// A copy of this size or more goes through copy(), which may stream; for a shorter one the call costs more.
constexpr std::size_t kShortBytes = 1 << 10;

// A position in a face that advances run by run.
//
// Dims of one element are dropped, and dims that lie end to end are merged. So a run is as long as possible,
// and a contiguous face is one run.
//
// Owns    its position only. Thread  one. Bound  the face's elements. Fails  never.
class Cursor {
 public:
  Cursor(const Face& face, std::uint64_t element, std::size_t element_bytes)
      : bytes_(static_cast<std::int64_t>(element_bytes)), base_(face.data) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
      if (face.size[d] == 1) continue;
      if (dims_ > 0 && stride_[dims_ - 1] == face.size[d] * face.stride[d]) {
        size_[dims_ - 1] *= face.size[d];
        stride_[dims_ - 1] = face.stride[d];
        continue;
      }
      size_[dims_] = face.size[d];
      stride_[dims_++] = face.stride[d];
    }
    if (dims_ == 0) {  // one element
      size_[0] = stride_[0] = 1;
      dims_ = 1;
    }
    std::uint64_t rest = element;
    for (std::size_t d = dims_; d-- > 0;) {
      const auto size = static_cast<std::uint64_t>(size_[d]);
      at_[d] = static_cast<std::int64_t>(rest % size);
      rest /= size;
      base_ += at_[d] * stride_[d] * bytes_;
    }
  }

  std::byte* data() const { return base_; }
  // Elements of the innermost dim from here on, and the stride between them.
  std::uint64_t run() const { return static_cast<std::uint64_t>(size_[dims_ - 1] - at_[dims_ - 1]); }
  std::int64_t stride() const { return stride_[dims_ - 1]; }
  // Moves on by `elements`, at most run().
  void advance(std::uint64_t elements) {
    std::size_t d = dims_ - 1;
    at_[d] += static_cast<std::int64_t>(elements);
    base_ += static_cast<std::int64_t>(elements) * stride_[d] * bytes_;
    while (at_[d] == size_[d] && d > 0) {
      base_ += (stride_[d - 1] - size_[d] * stride_[d]) * bytes_;
      at_[d] = 0;
      ++at_[--d];
    }
  }

 private:
  std::int64_t bytes_;
  std::byte* base_;
  // Only the first dims_ entries are ever set: there is one cursor for each side of each copy.
  std::size_t dims_ = 0;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size_;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> stride_;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> at_;
};

template<std::size_t kBytes>
void copy_strided(std::byte* target, std::int64_t target_stride, const std::byte* source,
                  std::int64_t source_stride, std::uint64_t count) {
  for (std::uint64_t k = 0; k < count; ++k) {
    std::memcpy(target, source, kBytes);
    target += target_stride * static_cast<std::int64_t>(kBytes);
    source += source_stride * static_cast<std::int64_t>(kBytes);
  }
}

void copy_run(const Cursor& target, const Cursor& source, std::uint64_t count, std::size_t element_bytes,
              std::size_t streaming_from) {
  const bool contiguous = count == 1 || (target.stride() == 1 && source.stride() == 1);
  const std::size_t bytes = count * element_bytes;
  if (contiguous && bytes < kShortBytes) {
    std::memcpy(target.data(), source.data(), bytes);
    return;
  }
  if (contiguous) {
    copy(target.data(), source.data(), bytes, streaming_from);
    return;
  }
  switch (element_bytes) {
    case 1:
      return copy_strided<1>(target.data(), target.stride(), source.data(), source.stride(), count);
    case 2:
      return copy_strided<2>(target.data(), target.stride(), source.data(), source.stride(), count);
    case 4:
      return copy_strided<4>(target.data(), target.stride(), source.data(), source.stride(), count);
    default:
      return copy_strided<8>(target.data(), target.stride(), source.data(), source.stride(), count);
  }
}

}  // namespace

void copy_faces(const Face& target, const Face& source, std::uint64_t first, std::uint64_t last,
                std::size_t element_bytes, std::size_t streaming_from) {
  if (first == last) return;  // an empty view has no first address
  Cursor to(target, first, element_bytes);
  Cursor from(source, first, element_bytes);
  while (first < last) {
    const std::uint64_t count = std::min({to.run(), from.run(), last - first});
    copy_run(to, from, count, element_bytes, streaming_from);
    first += count;
    if (first == last) return;  // behind the last element there may be no address
    to.advance(count);
    from.advance(count);
  }
}

}  // namespace muster::math
