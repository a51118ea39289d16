#include "kernels/activation/activation.hpp"

#include "kernels/math/normal.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/activation.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"

#include <muster/kernels.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

const Kernel& kernel(std::int32_t op) {
  return row_of(activation::rows(), op);
}

std::size_t count(const Shape& shape) {
  std::size_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  return n;
}

// The units in the last place by which a float misses the true value; below the normal range, in units of its
// end.
double ulps(float actual, double expected) {
  const int exponent = expected == 0.0 ? -126 : std::max(-126, std::ilogb(expected));
  return std::abs(static_cast<double>(actual) - expected) / std::ldexp(1.0, exponent - 23);
}

const Shape kShapes[] = {{1},
                         {3},
                         {17},
                         {129},
                         {0},
                         {3, 0},
                         {5, 17},
                         {3, 1, 40},
                         {2, 3, 5, 7},
                         {40, 2500},
                         {2, 1, 3, 4, 5},
                         {2, 2, 3, 1, 2, 3},
                         {2, 3, 1, 2, 2, 2, 3},
                         {3, 2, 1, 2, 3, 2, 2, 5}};

template<class F>
void for_each_case(F&& f) {
  for (const Shape& shape : kShapes)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(shape) << " " << layout_name(layout) << " dtype " << dtype);
        f(shape, dtype, layout);
      }
}

// A value near zero is the difference of others: the absolute part. The rest is a few units in the last
// place.
Tolerance about(muster_dtype dtype) {
  return {1e-6, dtype == MUSTER_F32 ? 1e-6 : half_ulp(dtype)};
}

TEST(Gelu, MatchesTheTwinForEveryShapeAndLayout) {
  Random random(501);
  for_each_case([&random](const Shape& shape, muster_dtype dtype, Layout layout) {
    OwnedTensor x(dtype, shape, layout, random.uniforms(count(shape), -6.0, 6.0));
    OwnedTensor dy(dtype, shape, Layout::kDense, random.uniforms(count(shape)));
    OwnedTensor y(dtype, shape, Layout::kPaddedRows);
    OwnedTensor dx(dtype, shape, layout);
    run_in_any_order(kernel(MUSTER_KERNEL_GELU_FORWARD), args_of({x.view(), y.view()}), {&y});
    expect_close(y.values(), twin::gelu(x.values()), about(dtype));
    run_in_any_order(kernel(MUSTER_KERNEL_GELU_BACKWARD), args_of({dy.view(), x.view(), dx.view()}), {&dx});
    expect_close(dx.values(), twin::gelu_backward(dy.values(), x.values()), about(dtype));
  });
}

TEST(Swiglu, MatchesTheTwinForEveryShapeAndLayout) {
  Random random(502);
  for_each_case([&random](const Shape& shape, muster_dtype dtype, Layout layout) {
    OwnedTensor gate(dtype, shape, layout, random.uniforms(count(shape), -9.0, 9.0));
    OwnedTensor up(dtype, shape, Layout::kPaddedRows, random.uniforms(count(shape), -2.0, 2.0));
    OwnedTensor dy(dtype, shape, Layout::kSpacedInner, random.uniforms(count(shape)));
    OwnedTensor y(dtype, shape, layout);
    OwnedTensor dgate(dtype, shape, layout);
    OwnedTensor dup(dtype, shape, Layout::kDense);
    run_in_any_order(kernel(MUSTER_KERNEL_SWIGLU_FORWARD), args_of({gate.view(), up.view(), y.view()}), {&y});
    expect_close(y.values(), twin::swiglu(gate.values(), up.values()), about(dtype));
    run_in_any_order(kernel(MUSTER_KERNEL_SWIGLU_BACKWARD),
                     args_of({dy.view(), gate.view(), up.view(), dgate.view(), dup.view()}), {&dgate, &dup});
    const auto g = twin::swiglu_backward(dy.values(), gate.values(), up.values());
    expect_close(dgate.values(), g.dgate, about(dtype));
    expect_close(dup.values(), g.dup, about(dtype));
  });
}

// Goal: no overflow, no NaN and no lost tail far from zero.
TEST(Activation, SaturatesCleanlyFarFromZero) {
  const Values far{-1e30, -200.0, -100.0, -20.0, -13.0, -5.5, -0.0, 0.0, 5.5, 13.0, 100.0, 1e30};
  const auto n = static_cast<std::int64_t>(far.size());
  OwnedTensor x(MUSTER_F32, {n}, Layout::kDense, far);
  OwnedTensor one(MUSTER_F32, {n}, Layout::kDense, Values(far.size(), 1.0));
  OwnedTensor y(MUSTER_F32, {n});
  run(kernel(MUSTER_KERNEL_GELU_FORWARD), args_of({x.view(), y.view()}));
  expect_close(y.values(), twin::gelu(x.values()), {1e-37, 2e-6});
  run(kernel(MUSTER_KERNEL_GELU_BACKWARD), args_of({one.view(), x.view(), y.view()}));
  expect_close(y.values(), twin::gelu_backward(one.values(), x.values()), {1e-30, 1e-5});
  run(kernel(MUSTER_KERNEL_SWIGLU_FORWARD), args_of({x.view(), one.view(), y.view()}));
  expect_close(y.values(), twin::swiglu(x.values(), one.values()), {1e-36, 1e-6});
}

// Goal: the accuracy that the headers promise, over the whole range, tail included.
TEST(Exponential, IsWithinOneAndAHalfUnitsInTheLastPlace) {
  Random random(503);
  double worst = 0.0;
  for (int i = 0; i < 200'000; ++i) {
    const auto x = static_cast<float>(random.uniform(-103.0, 88.7));
    worst = std::max(worst, ulps(math::exponential(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 1.5);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exponential(0.0f), 1.0f);
  EXPECT_EQ(math::exponential(-kInfinity), 0.0f);
  EXPECT_EQ(math::exponential(kInfinity), kInfinity);
  EXPECT_EQ(math::exponential(89.0f), kInfinity);
  EXPECT_TRUE(std::isnan(math::exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Normal, IsWithinAFewUnitsInTheLastPlaceOnBothSides) {
  Random random(504);
  double worst = 0.0;
  for (int i = 0; i < 200'000; ++i) {
    const auto x = static_cast<float>(random.uniform(-12.5, 6.0));
    const double expected = 0.5 * std::erfc(-static_cast<double>(x) / std::sqrt(2.0));
    worst = std::max(worst, ulps(math::normal_at(x).cdf, expected));
  }
  EXPECT_LT(worst, 8.0);
  EXPECT_TRUE(std::isnan(math::normal_at(std::numeric_limits<float>::quiet_NaN()).cdf));
}

TEST(ActivationTwin, BackwardIsTheSlopeOfForward) {
  Random random(505);
  const Values x = random.uniforms(40, -4.0, 4.0);
  const Values up = random.uniforms(40, -2.0, 2.0);
  const Values dy = random.uniforms(40);
  const auto gelu_loss = [&](const Values& v) { return twin::dot(twin::gelu(v), dy); };
  expect_close(twin::gelu_backward(dy, x), twin::finite_difference(gelu_loss, x), {1e-9, 1e-9});
  const auto g = twin::swiglu_backward(dy, x, up);
  const auto gate_loss = [&](const Values& v) { return twin::dot(twin::swiglu(v, up), dy); };
  const auto up_loss = [&](const Values& v) { return twin::dot(twin::swiglu(x, v), dy); };
  expect_close(g.dgate, twin::finite_difference(gate_loss, x), {1e-8, 1e-8});
  expect_close(g.dup, twin::finite_difference(up_loss, up), {1e-8, 1e-8});
}

TEST(Activation, RefusesOperandsThatDoNotFitAndSaysWhich) {
  OwnedTensor x(MUSTER_F32, {4, 6});
  OwnedTensor y(MUSTER_F32, {4, 6});
  OwnedTensor other(MUSTER_F32, {6, 4});
  OwnedTensor half(MUSTER_BF16, {4, 6});
  OwnedTensor ints(MUSTER_I32, {4, 6});
  OwnedTensor scalar(MUSTER_F32, {});
  expect_refused(kernel(MUSTER_KERNEL_GELU_FORWARD), args_of({x.view(), other.view()}),
                 "y is [6, 4], but x is [4, 6]");
  expect_refused(kernel(MUSTER_KERNEL_GELU_FORWARD), args_of({ints.view(), ints.view()}), "x is i32");
  expect_refused(kernel(MUSTER_KERNEL_GELU_FORWARD), args_of({scalar.view(), scalar.view()}),
                 "x is a scalar");
  expect_refused(kernel(MUSTER_KERNEL_GELU_BACKWARD), args_of({x.view(), x.view(), half.view()}),
                 "dx is bf16, but dy is f32");
  expect_refused(kernel(MUSTER_KERNEL_SWIGLU_FORWARD), args_of({x.view(), other.view(), y.view()}),
                 "up is [6, 4], but gate is [4, 6]");
  expect_refused(kernel(MUSTER_KERNEL_SWIGLU_BACKWARD),
                 args_of({x.view(), x.view(), x.view(), y.view(), other.view()}),
                 "dup is [6, 4], but dy is [4, 6]");
}

}  // namespace
}  // namespace muster::kernels::test
