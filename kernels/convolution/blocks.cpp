#include "kernels/convolution/blocks.hpp"

namespace muster::kernels::convolution {

std::int64_t FieldBlock::count() const {
  std::int64_t count = channels.end - channels.begin;
  for (std::size_t d = 0; d < dims; ++d) count *= region.end[d] - region.begin[d];
  return count;
}

bool FieldBlock::is_dense() const {
  if (array->dtype != MUSTER_F32) return false;
  std::int64_t stride = 1;
  const auto fits = [&stride](std::int64_t size, std::int64_t given) {
    const bool follows = size <= 1 || given == stride;
    stride *= size;
    return follows;
  };
  if (!fits(channels.end - channels.begin, array->stride[dims + 1])) return false;
  for (std::size_t d = dims; d-- > 0;)
    if (!fits(region.end[d] - region.begin[d], array->stride[d + 1])) return false;
  return true;
}

float* FieldBlock::address() const {
  std::int64_t first = sample * array->stride[0] + channels.begin * array->stride[dims + 1];
  for (std::size_t d = 0; d < dims; ++d) first += (region.begin[d] - begin[d]) * array->stride[d + 1];
  return elements<float>(*array) + first;
}

}  // namespace muster::kernels::convolution
