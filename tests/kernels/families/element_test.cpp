#include "kernels/element.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using math::to_bf16;
using math::to_f16;
using math::to_float;

// The next 16-bit float of the same sign further from zero is one more in its bits.
template<class Half>
Half next(Half x) {
  return {static_cast<std::uint16_t>(x.bits + 1)};
}
Bf16 narrowed(float x, Bf16) {
  return to_bf16(x);
}
F16 narrowed(float x, F16) {
  return to_f16(x);
}
Bf16 narrowed(double x, Bf16) {
  return to_bf16(x);
}
F16 narrowed(double x, F16) {
  return to_f16(x);
}

// Goal:   rounding is to nearest, ties to even, for every pair of neighbours, from float and from double.
// Method: exhaustive over all finite bit patterns: the value itself, the midpoint to the next value, and the
//         points just beside the midpoint. The step beyond the largest value ends in infinity.
template<class Half>
void check_every_neighbour(std::uint16_t infinity) {
  for (const std::uint16_t sign : {std::uint16_t{0}, std::uint16_t{0x8000}}) {
    for (std::uint16_t magnitude = 0; magnitude < infinity; ++magnitude) {
      const Half low{static_cast<std::uint16_t>(sign | magnitude)};
      const Half high = next(low);
      const float value = to_float(low);
      ASSERT_EQ(narrowed(value, low).bits, low.bits);
      if (magnitude + 1 == infinity) break;
      // Exact: neighbours differ by a power of two far above a double's last bit.
      const double middle = (static_cast<double>(value) + static_cast<double>(to_float(high))) / 2.0;
      const Half even = magnitude % 2 == 0 ? low : high;
      ASSERT_EQ(narrowed(middle, low).bits, even.bits) << magnitude;
      ASSERT_EQ(narrowed(static_cast<float>(middle), low).bits, even.bits) << magnitude;
      const double outward = std::copysign(std::numeric_limits<double>::infinity(), middle);
      ASSERT_EQ(narrowed(std::nextafter(middle, outward), low).bits, high.bits) << magnitude;
      ASSERT_EQ(narrowed(std::nextafter(middle, 0.0), low).bits, low.bits) << magnitude;
      const float nearest = static_cast<float>(middle);
      ASSERT_EQ(narrowed(std::nextafter(nearest, static_cast<float>(outward)), low).bits, high.bits)
          << magnitude;
      ASSERT_EQ(narrowed(std::nextafter(nearest, 0.0f), low).bits, low.bits) << magnitude;
    }
  }
}

TEST(Bf16, RoundsEveryNeighbourhoodToNearestEven) {
  check_every_neighbour<Bf16>(0x7f80);
}
TEST(F16, RoundsEveryNeighbourhoodToNearestEven) {
  check_every_neighbour<F16>(0x7c00);
}

TEST(Float16, KeepsInfinitiesAndNaNsAndOverflowsToInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bf16(-infinity)), -infinity);
  EXPECT_EQ(to_float(to_f16(infinity)), infinity);
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(to_float(to_bf16(1e300)), infinity);
  EXPECT_EQ(to_float(to_f16(65519.0f)), 65504.0f);
  EXPECT_EQ(to_float(to_f16(65520.0f)), infinity);
  EXPECT_EQ(to_float(to_f16(-1e30f)), -infinity);
  // A NaN whose payload lies in the bits that are cut off must not become an infinity.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(nan))));
  EXPECT_TRUE(std::isnan(to_float(to_f16(nan))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::nan("")))));
  EXPECT_TRUE(std::isnan(to_float(to_f16(std::nan("")))));
}

TEST(Ranges, CoverEveryElementOnce) {
  for (const std::int64_t count : {0, 1, 9, 10, 11, 1000}) {
    std::int64_t next_element = 0;
    for (std::uint32_t part = 0; part < parts_of(count, 10); ++part) {
      const Range range = range_of(count, 10, part);
      EXPECT_EQ(range.begin, next_element);
      EXPECT_LT(range.begin, range.end);
      next_element = range.end;
    }
    EXPECT_EQ(next_element, count);
  }
}

// Goal:   any range of the elements is visited once, in row-major order, in runs.
// Method: two views of one shape in different layouts; every pair of bounds; offsets compared with plain
//         index arithmetic.
TEST(Walk, VisitsAnyRangeInRowMajorOrder) {
  for (const Shape& shape : {Shape{3, 4, 5}, Shape{6, 1, 7}, Shape{2, 3, 2, 3}, Shape{5}, Shape{},
                             Shape{2, 1, 3, 2, 2}, Shape{2, 2, 1, 2, 3, 2, 1, 2}}) {
    OwnedTensor first(MUSTER_F32, shape, Layout::kSpacedInner);
    OwnedTensor second(MUSTER_F32, shape, Layout::kTransposed);
    const std::array<Tensor, 2> views{first.view(), second.view()};
    const Walk<2> walk({&views[0], &views[1]});
    ASSERT_EQ(walk.count(), first.count());
    for (std::int64_t begin = 0; begin <= walk.count(); ++begin) {
      for (std::int64_t end = begin; end <= walk.count(); end += 7) {
        std::int64_t element = begin;
        walk.over(begin, end, [&](const auto& offsets, std::int64_t length) {
          for (std::int64_t i = 0; i < length; ++i, ++element) {
            for (std::size_t v = 0; v < 2; ++v) {
              std::int64_t rest = element;
              std::int64_t expected = 0;
              for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d])
                expected += rest % shape[d] * views[v].stride[d];
              ASSERT_EQ(offsets[v] + i * walk.step()[v], expected);
            }
          }
        });
        ASSERT_EQ(element, end);
      }
    }
  }
}

// Goal:   no order of dims, no gap and no number of dims is special.
// Method: views of 5 to 8 dims with dims nested in any order and gaps between them, held against plain index
//         arithmetic.
TEST(Walk, VisitsViewsOfManyDimsInAnyOrderOfStrides) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::array<Tensor, 3> views;
    const auto dims = static_cast<std::size_t>(random.integer(5, MUSTER_TENSOR_DIMS_MAX));
    for (Tensor& view : views) {
      view.dims = static_cast<std::int32_t>(dims);
      for (std::size_t d = 0; d < dims; ++d) view.size[d] = views[0].size[d];
      if (&view == views.data())
        for (std::size_t d = 0; d < dims; ++d) view.size[d] = random.integer(1, 3);
      std::array<bool, MUSTER_TENSOR_DIMS_MAX> taken{};
      std::int64_t span = 1;
      for (std::size_t left = dims; left > 0; --left) {
        std::size_t d = dims - 1;
        if (round % 3 != 0)
          d = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(dims) - 1));
        while (taken[d]) d = (d + dims - 1) % dims;
        taken[d] = true;
        view.stride[d] = span + (random.integer(0, 3) == 0 ? 1 : 0);
        span = view.stride[d] * view.size[d];
      }
    }
    const Walk<3> walk({&views[0], &views[1], &views[2]});
    ASSERT_EQ(walk.count(), views[0].count());
    const std::int64_t begin = random.integer(0, walk.count() - 1);
    const std::int64_t end = random.integer(begin, walk.count());
    std::int64_t element = begin;
    walk.over(begin, end, [&](const auto& offsets, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i, ++element) {
        for (std::size_t v = 0; v < views.size(); ++v) {
          std::int64_t rest = element;
          std::int64_t expected = 0;
          for (std::size_t d = dims; d-- > 0; rest /= views[v].size[d])
            expected += rest % views[v].size[d] * views[v].stride[d];
          ASSERT_EQ(offsets[v] + i * walk.step()[v], expected) << "round " << round;
        }
      }
    });
    ASSERT_EQ(element, end);
  }
}

TEST(Walk, MergesDimsThatAreContiguousInAllViews) {
  OwnedTensor dense(MUSTER_F32, {4, 5, 6});
  OwnedTensor padded(MUSTER_F32, {4, 5, 6}, Layout::kPaddedRows);
  const auto runs = [](const Tensor& a, const Tensor& b) {
    const Walk<2> walk({&a, &b});
    std::int64_t count = 0;
    walk.over(0, walk.count(), [&](const auto&, std::int64_t) { ++count; });
    return count;
  };
  EXPECT_EQ(runs(dense.view(), dense.view()), 1);
  EXPECT_EQ(runs(dense.view(), padded.view()), 20);
}

// Found by tests/fuzz/descriptor.cpp: strides that no element has were multiplied.
TEST(Walk, OfNothingLooksAtNoStride) {
  OwnedTensor none(MUSTER_F32, {18, 18, 0});
  Tensor view = none.view();
  view.stride = {INT64_MAX, INT64_MAX / 2, INT64_MAX, 1};
  const Walk<1> walk({&view});
  EXPECT_EQ(walk.count(), 0);
  EXPECT_TRUE(walk.unit_step());
}

}  // namespace
}  // namespace muster::kernels::test
