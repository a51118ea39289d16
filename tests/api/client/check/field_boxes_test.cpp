// The parts of operands that kernels over boxes use, against plain loops over what each result reads.
#include "api/client/check/field_boxes.hpp"

#include <muster/halo.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

namespace muster::client {
namespace {

using Span = std::pair<std::int64_t, std::int64_t>;  // [begin, end) of the operand's rows; begin = end: none

muster_tensor rows(std::int64_t count, std::int64_t channels) {
  const std::int64_t shape[] = {1, count, channels};
  return muster_view(1, 0, MUSTER_F32, 3, shape);
}
Span span_of(const muster_kernel& kernel, std::uint32_t operand) {
  const muster_tensor used = used_part(kernel, operand), whole = kernel.tensors[operand];
  const auto begin =
      static_cast<std::int64_t>((used.offset_bytes - whole.offset_bytes) / 4) / whole.stride[1];
  return {used.size[1] == 0 ? 0 : begin, used.size[1] == 0 ? 0 : begin + used.size[1]};
}

// Goal:   forward and by weights read the items of their results, by items the results that read them, and
// each
//         writes its box alone.
TEST(FieldBoxes, AreWhatConvolutionsUse) {
  const std::int64_t shape[] = {2, 3, 2};  // [K, kernel, C]
  const muster_tensor w = muster_view(1, 0, MUSTER_F32, 3, shape);
  for (const std::int64_t stride : {1, 2, 3})
    for (const std::int64_t dilation : {1, 2})
      for (std::int64_t from = 4; from < 8; ++from)
        for (std::int64_t length = 0; length < 4; ++length) {
          muster_convolution c = MUSTER_CONVOLUTION_INIT;
          c.stride[0] = stride;
          c.dilation[0] = dilation;
          c.before[0] = 1;
          c.x_offset[0] = 3;
          c.y_offset[0] = 2;
          c.offset[0] = from;
          c.length[0] = length;
          const muster_tensor x = rows(12, 2), y = rows(8, 2);
          Span items{12, 0}, results{8, 0};
          for (std::int64_t o = 0; o < 40; ++o)
            for (std::int64_t tap = 0; tap < 3; ++tap) {
              const std::int64_t item = o * stride - 1 + dilation * tap - 3, result = o - 2;
              if (o >= from && o < from + length && item >= 0 && item < 12)
                items = {std::min(items.first, item), std::max(items.second, item + 1)};
              if (item + 3 >= from && item + 3 < from + length && result >= 0 && result < 8)
                results = {std::min(results.first, result), std::max(results.second, result + 1)};
            }
          if (items.second == 0) items = {0, 0};
          if (results.second == 0) results = {0, 0};
          const Span of_results =
              length == 0 ? Span{0, 0} : Span{from - 2, std::min<std::int64_t>(8, from - 2 + length)};
          const Span of_items = length == 0 ? Span{0, 0} : Span{from - 3, from - 3 + length};
          const muster_kernel forward = muster_convolution_forward(&c, x, w, muster_tensor{}, y);
          // With a dilation an end may lie in a gap.
          const auto covers = [dilation](const Span& said, const Span& right) {
            return dilation == 1
                       ? said == right
                       : right.second == 0 || (said.first <= right.first && said.second >= right.second);
          };
          EXPECT_TRUE(covers(span_of(forward, 0), items)) << stride << dilation << from << length;
          EXPECT_EQ(span_of(forward, 3), of_results);
          const muster_kernel by_weights = muster_convolution_wgrad(&c, y, x, w, muster_tensor{}, 0);
          EXPECT_TRUE(covers(span_of(by_weights, 1), items));
          const muster_kernel by_items = muster_convolution_dgrad(&c, y, w, x, 0);
          const Span said = span_of(by_items, 0);
          EXPECT_TRUE(results.second == 0 || (said.first <= results.first && said.second >= results.second));
          if (dilation == 1 && stride == 1) EXPECT_EQ(said, results);
          EXPECT_EQ(span_of(by_items, 2), of_items);
        }
}

TEST(FieldBoxes, AreWhatInterpolationsUse) {
  muster_interpolation n = MUSTER_INTERPOLATION_INIT;
  n.mode = MUSTER_WINDOW_LINEAR;
  n.items[0] = 10;
  n.results[0] = 20;
  n.offset[0] = 4;
  n.length[0] = 4;  // results 4 to 7 read the items 1 to 4
  const muster_tensor x = rows(10, 2), y = rows(20, 2);
  const muster_kernel forward = muster_interpolate_forward(&n, x, y);
  EXPECT_EQ(span_of(forward, 0), Span(1, 5));
  EXPECT_EQ(span_of(forward, 1), Span(4, 8));
  n.length[0] = 1;  // item 4 is read by the results 7 to 10
  const muster_kernel backward = muster_interpolate_backward(&n, y, x, 0);
  EXPECT_EQ(span_of(backward, 0), Span(7, 11));
  EXPECT_EQ(span_of(backward, 1), Span(4, 5));
}

TEST(FieldBoxes, AreTheWholeOperandElsewhere) {
  const muster_tensor x = rows(10, 2);
  const muster_kernel copy = muster_copy(x, x);
  EXPECT_EQ(span_of(copy, 0), Span(0, 10));
  muster_convolution c = MUSTER_CONVOLUTION_INIT;
  c.stride[0] = 0;
  EXPECT_EQ(span_of(muster_convolution_forward(&c, x, x, muster_tensor{}, x), 0), Span(0, 10));
  c.stride[0] = 1;
  c.offset[0] = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(span_of(muster_convolution_forward(&c, x, x, muster_tensor{}, x), 0), Span(0, 10));
}

}  // namespace
}  // namespace muster::client
