#include "kernels/rope/rope.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"
#include "tests/kernels/families/twin/rope.hpp"

#include <muster/kernels.h>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr double kTheta = 10000.0;

const Kernel& rope() {
  return row_of(rope::rows(), MUSTER_KERNEL_ROPE);
}

std::size_t count(const Shape& s) {
  return static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]);
}

twin::RopeShape twin_shape(const Shape& s) {
  return {static_cast<std::size_t>(s[0]), static_cast<std::size_t>(s[1]), static_cast<std::size_t>(s[2]),
          static_cast<std::size_t>(s[3])};
}

Tolerance about(muster_dtype dtype) {
  return {3e-7, dtype == MUSTER_F32 ? 1e-7 : half_ulp(dtype)};
}

// Sizes odd, empty, and cut into parts by position, by batch entry and by both.
const Shape kShapes[] = {{1, 1, 1, 2}, {2, 3, 1, 34}, {3, 17, 5, 6}, {1, 129, 3, 16}, {0, 4, 2, 8},
                         {2, 0, 2, 8}, {2, 4, 0, 8},  {2, 4, 2, 0},  {9, 40, 8, 64},  {70, 3, 16, 64}};

TEST(Rope, MatchesTheTwinForEveryShapeLayoutAndDirection) {
  Random random(401);
  for (const Shape& shape : kShapes)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        const std::int64_t position = random.integer(0, 5000);
        const int direction = random.integer(0, 1) == 0 ? 1 : -1;
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(shape) << " " << layout_name(layout) << " dtype " << dtype
                     << " position " << position << " direction " << direction);
        OwnedTensor x(dtype, shape, layout, random.uniforms(count(shape)));
        OwnedTensor y(dtype, shape, Layout::kPaddedRows);
        run_in_any_order(rope(), args_of({x.view(), y.view()}, {position, direction}, {kTheta}), {&y});
        expect_close(y.values(), twin::rope(x.values(), twin_shape(shape), position, kTheta, direction),
                     about(dtype));
      }
}

TEST(Rope, WorksInPlace) {
  Random random(402);
  const Shape shape{2, 50, 3, 10};
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
    for (const Layout layout : kLayouts) {
      OwnedTensor x(dtype, shape, layout, random.uniforms(count(shape)));
      const Values expected = twin::rope(x.values(), twin_shape(shape), 7, kTheta, 1);
      run_in_any_order(rope(), args_of({x.view(), x.view()}, {7, 1}, {kTheta}), {&x});
      expect_close(x.values(), expected, about(dtype));
    }
}

// Goal: context-parallel shards, each told its position, equal the whole bit by bit.
TEST(Rope, GivesAPositionTheSameBitsInAnyShard) {
  Random random(403);
  const Shape shape{3, 200, 4, 32};
  OwnedTensor x(MUSTER_F32, shape, Layout::kDense, random.uniforms(count(shape)));
  OwnedTensor whole(MUSTER_F32, shape);
  OwnedTensor sharded(MUSTER_F32, shape);
  run(rope(), args_of({x.view(), whole.view()}, {1000, 1}, {kTheta}));
  for (const auto& [begin, end] :
       {std::pair{0, 1}, std::pair{1, 67}, std::pair{67, 67}, std::pair{67, 200}}) {
    Args args = args_of({x.view(), sharded.view()}, {1000 + begin, 1}, {kTheta});
    for (Tensor& t : std::span(args.tensors).first(2)) {
      t.data += begin * t.stride[1] * 4;
      t.size[1] = end - begin;
    }
    run(rope(), args);
  }
  EXPECT_EQ(sharded.values(), whole.values());
}

// Goal:   far along a sequence the angle is still that of the position, not of accumulated steps.
TEST(Rope, StaysAccurateFarAlongTheSequence) {
  Random random(404);
  const Shape shape{1, 70, 1, 64};
  OwnedTensor x(MUSTER_F32, shape, Layout::kDense, random.uniforms(count(shape)));
  OwnedTensor y(MUSTER_F32, shape);
  run(rope(), args_of({x.view(), y.view()}, {10'000'001, 1}, {500000.0}));
  expect_close(y.values(), twin::rope(x.values(), twin_shape(shape), 10'000'001, 500000.0, 1), {3e-7, 1e-7});
}

TEST(RopeTwin, TurningBackIsTheSlopeOfTurning) {
  Random random(405);
  const twin::RopeShape shape{2, 3, 2, 6};
  const Values x = random.uniforms(72);
  const Values dy = random.uniforms(72);
  const auto loss = [&](const Values& v) { return twin::dot(twin::rope(v, shape, 5, kTheta, 1), dy); };
  expect_close(twin::rope(dy, shape, 5, kTheta, -1), twin::finite_difference(loss, x), {1e-9, 1e-9});
}

TEST(Rope, RefusesOperandsThatDoNotFitAndSaysWhich) {
  OwnedTensor x(MUSTER_F32, {2, 3, 2, 6});
  OwnedTensor y(MUSTER_F32, {2, 3, 2, 6});
  OwnedTensor odd(MUSTER_F32, {2, 3, 2, 5});
  OwnedTensor flat(MUSTER_F32, {12, 6});
  OwnedTensor doubles(MUSTER_F64, {2, 3, 2, 6});
  expect_refused(rope(), args_of({odd.view(), odd.view()}, {0, 1}, {kTheta}),
                 "x is [2, 3, 2, 5]; its fourth size");
  expect_refused(rope(), args_of({x.view(), odd.view()}, {0, 1}, {kTheta}), "y is [2, 3, 2, 5], but x is");
  expect_refused(rope(), args_of({flat.view(), y.view()}, {0, 1}, {kTheta}), "x is [12, 6] and has 2 dims");
  Tensor long_rows = x.view();
  long_rows.size = {1, 1, 1, (1 << 20) + 2};
  expect_refused(rope(), args_of({long_rows, long_rows}, {0, 1}, {kTheta}),
                 "its fourth size must lie in 0..1048576");
  expect_refused(rope(), args_of({doubles.view(), y.view()}, {0, 1}, {kTheta}), "x is f64");
  expect_refused(rope(), args_of({x.view(), y.view()}, {-1, 1}, {kTheta}), "position is -1");
  expect_refused(rope(), args_of({x.view(), y.view()}, {0, 0}, {kTheta}), "direction is 0");
  expect_refused(rope(), args_of({x.view(), y.view()}, {0, 1}, {0.0}), "theta is 0");
}

}  // namespace
}  // namespace muster::kernels::test
