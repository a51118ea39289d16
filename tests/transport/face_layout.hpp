// Strided views for the faces of a neighbour exchange, made from a seed.
#pragma once

#include "tests/kernels/math/values.hpp"
#include "tests/transport/oracle.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace muster::transport::test {

using math::test::Random;

// Hands out aligned ranges of a growing arena.
class Layout {
 public:
  explicit Layout(std::size_t misaligned_bytes) : misaligned_(misaligned_bytes) {}
  std::size_t take(std::uint64_t bytes) {
    const std::size_t at = (end_ + 63) / 64 * 64 + misaligned_;
    end_ = at + bytes + 64;
    return at;
  }
  std::size_t bytes() const { return end_ + 64; }

 private:
  std::size_t misaligned_;
  std::size_t end_ = 64;
};

// Up to eight sizes whose product is `count`, now and then one of a single element among them.
inline std::vector<std::int64_t> random_sizes(Random& random, std::uint64_t count) {
  if (count == 1 && random.below(2) == 0) return {};
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(count)};
  while (sizes.size() < MUSTER_TENSOR_DIMS_MAX && random.below(8) != 0) {
    const std::size_t at = random.below(sizes.size());
    const auto divisor = static_cast<std::int64_t>(1 + random.below(5));
    if (count == 0) {
      sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at), divisor);
    } else if (sizes[at] % divisor == 0) {
      sizes[at] /= divisor;
      sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at), divisor);
    }
  }
  return sizes;
}

// Strides without overlap: dims are nested in any order, end to end or with gaps. Returns the elements that
// the view spans.
inline std::uint64_t random_strides(Random& random, const std::vector<std::int64_t>& sizes,
                                    std::vector<std::int64_t>& strides) {
  std::vector<std::size_t> order(sizes.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  const bool row_major = random.below(2) == 0;
  for (std::size_t d = order.size(); d > 1; --d)
    std::swap(order[d - 1], order[row_major ? d - 1 : random.below(d)]);
  const bool packed = random.below(3) == 0;
  strides.assign(sizes.size(), 1);
  std::int64_t span = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    const std::size_t d = order[k];
    strides[d] = span + (packed ? 0 : static_cast<std::int64_t>(random.below(3)));
    span = sizes[d] == 0 ? span : (sizes[d] - 1) * strides[d] + span;
  }
  return static_cast<std::uint64_t>(span);
}

// Places the faces of one member: each in memory of its own, or all as columns of one array, where none
// overlaps another although their ranges do. Sends are only read, so two of them may be one view.
inline void place_faces(Placement& member, Random& random, Layout& layout, std::size_t bytes,
                        const std::vector<std::uint64_t>& sent, const std::vector<std::uint64_t>& got) {
  const std::size_t columns = sent.size() + got.size();
  std::uint64_t rows = 0;
  for (const std::uint64_t count : sent) rows = std::max(rows, count);
  for (const std::uint64_t count : got) rows = std::max(rows, count);
  const bool interleaved = columns > 0 && random.below(3) == 0;
  const std::size_t array = interleaved ? layout.take(rows * columns * bytes) : 0;
  const auto place = [&](FacePlace& face, std::uint64_t count, std::size_t column) {
    if (interleaved) {
      face.size = {static_cast<std::int64_t>(count)};
      face.stride = {static_cast<std::int64_t>(columns)};
      face.at = array + column * bytes;
      return;
    }
    face.size = random_sizes(random, count);
    face.at = layout.take(random_strides(random, face.size, face.stride) * bytes);
  };
  for (std::size_t i = 0; i < sent.size(); ++i) {
    FacePlace& face = member.sends[i];
    const bool again = i > 0 && sent[i] == sent[i - 1] && random.below(3) == 0;
    if (!again) {
      place(face, sent[i], i);
      continue;
    }
    const FacePlace& same = member.sends[i - 1];
    face.size = same.size;
    face.stride = same.stride;
    face.at = same.at;
  }
  for (std::size_t i = 0; i < got.size(); ++i) place(member.receives[i], got[i], sent.size() + i);
}

}  // namespace muster::transport::test
