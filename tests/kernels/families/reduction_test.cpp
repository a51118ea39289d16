#include "kernels/reduction/reduction.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"

#include <muster/field_kernels.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

const Kernel& row(std::int32_t op) {
  return row_of(reduction::rows(), op);
}

// Which element of the narrow view an element of the wide one belongs to.
std::size_t narrowed(std::int64_t element, const Shape& wide, const Shape& narrow) {
  std::int64_t place = 0, step = 1;
  for (std::size_t d = wide.size(); d-- > 0; element /= wide[d]) {
    if (narrow[d] != 1) place += element % wide[d] * step;
    step *= narrow[d];
  }
  return static_cast<std::size_t>(place);
}

std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Goal:   case R2, sums over any dims, in any layout and dtype, and the gradient, which adds or replaces.
TEST(Reduction, SumsOverChosenDimsAndSpreadsBack) {
  Random random(17);
  const Shape wide{3, 5, 4, 70};
  for (int lost = 0; lost < 16; ++lost)
    for (const Layout layout : kLayouts)
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F64})
        for (const bool accumulate : {false, true}) {
          Shape narrow = wide;
          for (std::size_t d = 0; d < 4; ++d)
            if ((lost >> d & 1) != 0) narrow[d] = 1;
          SCOPED_TRACE(testing::PrintToString(narrow) + " " + layout_name(layout));
          const Values x = rounded(dtype, random.uniforms(static_cast<std::size_t>(count_of(wide))));
          const Values before(static_cast<std::size_t>(count_of(narrow)), 2.0);
          Values expected(before.size(), accumulate ? 2.0 : 0.0);
          for (std::size_t i = 0; i < x.size(); ++i)
            expected[narrowed(static_cast<std::int64_t>(i), wide, narrow)] += 0.5 * x[i];
          OwnedTensor from(dtype, wide, layout, x), sums(MUSTER_F32, narrow, layout, before);
          run_in_any_order(row(MUSTER_KERNEL_SUM_OVER),
                           args_of({from.view(), sums.view()}, {accumulate}, {0.5}), {&sums});
          expect_close(sums.values(), expected, {1e-6, 1e-6});
          if (dtype == MUSTER_F64) continue;
          OwnedTensor narrow_x(dtype, narrow, layout, rounded(dtype, expected)), back(dtype, wide, layout, x);
          Values spread = x;
          for (std::size_t i = 0; i < x.size(); ++i)
            spread[i] = (accumulate ? x[i] : 0.0) +
                        3.0 * rounded(dtype, expected)[narrowed(static_cast<std::int64_t>(i), wide, narrow)];
          if (lost % 5 != 0) continue;  // slow
          run_in_any_order(row(MUSTER_KERNEL_SPREAD),
                           args_of({narrow_x.view(), back.view()}, {accumulate}, {3.0}), {&back});
          expect_close(back.values(), spread, {1e-6, 1.01 * half_ulp(dtype)});
        }
}

// Goal:   case R1, the mean of [1, 2, 3 | 4], and with an empty third shard: 2.5, and gradients of 1/4
// everywhere.
TEST(Reduction, MakesMeansOfUnevenAndEmptyShards) {
  OwnedTensor sum(MUSTER_F64, {1}, Layout::kDense, {0.0});
  for (const Values& shard : {Values{1, 2, 3}, Values{4}, Values{}}) {
    OwnedTensor x(MUSTER_F32, {static_cast<std::int64_t>(shard.size())}, Layout::kDense, shard);
    run(row(MUSTER_KERNEL_SUM_OVER), args_of({x.view(), sum.view()}, {1}, {1.0}));
  }
  OwnedTensor mean(MUSTER_F32, {1}), one(MUSTER_F32, {1}, Layout::kDense, {1.0}), dx(MUSTER_F32, {3});
  run(row(MUSTER_KERNEL_SUM_OVER), args_of({sum.view(), mean.view()}, {0}, {0.25}));
  EXPECT_EQ(mean.values(), Values{2.5});
  run(row(MUSTER_KERNEL_SPREAD), args_of({one.view(), dx.view()}, {0}, {0.25}));
  EXPECT_EQ(dx.values(), (Values{0.25, 0.25, 0.25}));
}

// Goal:   case R3, a masked loss, mean(sum(m·(o-t)²)/sum(m)): products with a mask that is spread over dims.
TEST(Reduction, MultipliesByAViewThatIsSpread) {
  Random random(18);
  const Shape wide{3, 5, 4, 7};
  for (int lost = 0; lost < 16; ++lost)
    for (const Layout layout : kLayouts)
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
        for (const bool accumulate : {false, true}) {
          Shape narrow = wide;
          for (std::size_t d = 0; d < 4; ++d)
            if ((lost >> d & 1) != 0) narrow[d] = 1;
          const Values x = rounded(dtype, random.uniforms(static_cast<std::size_t>(count_of(wide)))),
                       w = random.uniforms(static_cast<std::size_t>(count_of(narrow)));
          Values expected(x.size(), accumulate ? 2.0 : 0.0);
          for (std::size_t i = 0; i < x.size(); ++i)
            expected[i] += 0.5 * x[i] * w[narrowed(static_cast<std::int64_t>(i), wide, narrow)];
          OwnedTensor from(dtype, wide, layout, x), weights(MUSTER_F64, narrow, layout, w),
              to(dtype, wide, layout, Values(x.size(), 2.0));
          run_in_any_order(row(MUSTER_KERNEL_PRODUCT),
                           args_of({from.view(), weights.view(), to.view()}, {accumulate}, {0.5}), {&to});
          expect_close(to.values(), expected, {1e-6, 1.01 * half_ulp(dtype)});
        }
}

TEST(Reduction, RefusesByName) {
  OwnedTensor x(MUSTER_F32, {2, 3}), sums(MUSTER_F32, {2, 1}), wrong(MUSTER_F32, {2, 2}),
      less(MUSTER_F32, {2});
  expect_refused(row(MUSTER_KERNEL_SUM_OVER), args_of({x.view(), wrong.view()}, {0}, {1.0}), "sums");
  expect_refused(row(MUSTER_KERNEL_SUM_OVER), args_of({x.view(), less.view()}, {0}, {1.0}), "sums");
  expect_refused(row(MUSTER_KERNEL_SUM_OVER), args_of({x.view(), sums.view()}, {2}, {1.0}), "accumulate");
  expect_refused(row(MUSTER_KERNEL_SPREAD), args_of({wrong.view(), x.view()}, {0}, {1.0}), "x");
  expect_refused(row(MUSTER_KERNEL_PRODUCT), args_of({x.view(), wrong.view(), x.view()}, {0}, {1.0}), "w");
  expect_refused(row(MUSTER_KERNEL_PRODUCT), args_of({sums.view(), x.view(), x.view()}, {0}, {1.0}), "x");
}

}  // namespace
}  // namespace muster::kernels::test
