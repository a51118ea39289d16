#include "kernels/norm/norm.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"
#include "tests/kernels/families/twin/norm.hpp"

#include <muster/kernels.h>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr muster_dtype kComputeDtypes[] = {MUSTER_F32, MUSTER_BF16};

const Kernel& kernel(std::int32_t op) {
  return row_of(norm::rows(), op);
}

struct Size {
  std::int64_t tokens, features;
};
// Odd ones, empty ones, one wider than a block of a sum, and two that are cut into several parts by rows and
// columns.
constexpr Size kSizes[] = {{1, 1}, {3, 17}, {17, 3},    {129, 129}, {2, 1500},
                           {0, 5}, {4, 0},  {300, 257}, {2100, 20}};

// x of [tokens, features] and all that goes with it, in one layout and dtype. x lies off zero, so that a mean
// that is not taken away shows.
struct Case {
  Case(Size size, muster_dtype dtype_, Layout layout_, Random& random)
      : dtype(dtype_),
        layout(layout_),
        tokens(static_cast<std::size_t>(size.tokens)),
        rows{size.tokens, size.features},
        per_row{size.tokens},
        per_column{size.features},
        x(dtype, rows, layout, random.uniforms(elements(), -0.5, 1.5)),
        dy(dtype, rows, Layout::kPaddedRows, random.uniforms(elements())),
        weight(dtype, per_column, Layout::kSpacedInner, random.uniforms(features(), 0.5, 1.5)),
        bias(dtype, per_column, Layout::kDense, random.uniforms(features())),
        y(dtype, rows, layout),
        dx(dtype, rows, layout, random.uniforms(elements())),
        mean(MUSTER_F32, per_row, Layout::kSpacedInner),
        rstd(MUSTER_F32, per_row, Layout::kDense),
        dweight(MUSTER_F32, per_column, Layout::kSpacedInner, random.uniforms(features())),
        dbias(dtype, per_column, Layout::kDense, random.uniforms(features())) {}

  std::size_t features() const { return static_cast<std::size_t>(per_column[0]); }
  std::size_t elements() const { return tokens * features(); }
  std::string name() const {
    return testing::PrintToString(rows) + " " + layout_name(layout) +
           (dtype == MUSTER_BF16 ? " bf16" : " f32");
  }

  muster_dtype dtype;
  Layout layout;
  std::size_t tokens;
  Shape rows, per_row, per_column;
  OwnedTensor x, dy, weight, bias, y, dx, mean, rstd, dweight, dbias;
};

template<class F>
void for_each_case(std::uint64_t seed, F&& f) {
  Random random(seed);
  for (const Size size : kSizes)
    for (const muster_dtype dtype : kComputeDtypes)
      for (const Layout layout : kLayouts) {
        Case c(size, dtype, layout, random);
        SCOPED_TRACE(c.name());
        f(c);
      }
}

// A few roundings in float, and the one to the output's dtype.
Tolerance about(muster_dtype dtype) {
  return {2e-6, dtype == MUSTER_F32 ? 1e-6 : half_ulp(dtype)};
}

Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(RmsNorm, ForwardMatchesTheTwinForEveryShapeAndLayout) {
  for_each_case(301, [](Case& c) {
    const auto expected = twin::rms_norm(c.x.values(), c.weight.values(), c.tokens, kEpsilon);
    run_in_any_order(kernel(MUSTER_KERNEL_RMS_NORM_FORWARD),
                     args_of({c.x.view(), c.weight.view(), c.y.view(), c.rstd.view()}, {}, {kEpsilon}),
                     {&c.y, &c.rstd});
    expect_close(c.y.values(), expected.y, about(c.dtype));
    expect_close(c.rstd.values(), expected.rstd, {0.0, 1e-6});
  });
}

TEST(LayerNorm, ForwardMatchesTheTwinWithAndWithoutBias) {
  for_each_case(302, [](Case& c) {
    for (const bool biased : {true, false}) {
      const auto expected = twin::layer_norm(c.x.values(), c.weight.values(),
                                             biased ? c.bias.values() : Values{}, c.tokens, kEpsilon);
      run_in_any_order(kernel(MUSTER_KERNEL_LAYER_NORM_FORWARD),
                       args_of({c.x.view(), c.weight.view(), biased ? c.bias.view() : Tensor{}, c.y.view(),
                                c.mean.view(), c.rstd.view()},
                               {}, {kEpsilon}),
                       {&c.y, &c.mean, &c.rstd});
      // One feature: the centred value is rounding noise, which rstd = 1/sqrt(epsilon) lifts.
      const double noise = c.features() == 1 ? 1e-4 : 0.0;
      Tolerance tolerance = about(c.dtype);
      tolerance.absolute += noise;
      expect_close(c.y.values(), expected.y, tolerance);
      expect_close(c.mean.values(), expected.mean, {1e-7, 1e-6});
      expect_close(c.rstd.values(), expected.rstd, {0.0, 1e-5});
    }
  });
}

// Sums of `tokens` terms of order 1 in float, in blocks.
Tolerance about_columns(const Case& c, muster_dtype dtype) {
  return {1e-6 * (4.0 + static_cast<double>(c.tokens) / 64.0), dtype == MUSTER_F32 ? 2e-6 : half_ulp(dtype)};
}

TEST(RmsNorm, BackwardMatchesTheTwinAndAccumulatesWhereAsked) {
  for_each_case(303, [](Case& c) {
    const auto forward = twin::rms_norm(c.x.values(), c.weight.values(), c.tokens, kEpsilon);
    c.rstd.set(forward.rstd);
    const auto g =
        twin::rms_norm_backward(c.dy.values(), c.x.values(), c.weight.values(), c.tokens, kEpsilon);
    for (const std::int64_t add_dx : {0, 1}) {
      const std::int64_t add_dweight = 1 - add_dx;
      const Values dx_before = c.dx.values();
      const Values dweight_before = c.dweight.values();
      run_in_any_order(
          kernel(MUSTER_KERNEL_RMS_NORM_BACKWARD),
          args_of({c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(), c.dx.view(), c.dweight.view()},
                  {add_dx, add_dweight}),
          {&c.dx, &c.dweight});
      expect_close(c.dx.values(), add_dx != 0 ? plus(g.dx, dx_before) : g.dx,
                   {4e-6, about(c.dtype).relative});
      expect_close(c.dweight.values(), add_dweight != 0 ? plus(g.dweight, dweight_before) : g.dweight,
                   about_columns(c, MUSTER_F32));
    }
  });
}

TEST(LayerNorm, BackwardMatchesTheTwinAndAccumulatesWhereAsked) {
  for_each_case(304, [](Case& c) {
    if (c.features() == 1) return;  // x - mean is zero and the gradient rounding noise times 1/sqrt(epsilon)
    const auto forward = twin::layer_norm(c.x.values(), c.weight.values(), {}, c.tokens, kEpsilon);
    c.mean.set(forward.mean);
    c.rstd.set(forward.rstd);
    const auto g =
        twin::layer_norm_backward(c.dy.values(), c.x.values(), c.weight.values(), c.tokens, kEpsilon);
    for (const std::int64_t add_dx : {0, 1}) {
      const std::int64_t add_dweight = 1 - add_dx;
      const Values dx_before = c.dx.values();
      const Values dweight_before = c.dweight.values();
      const Values dbias_before = c.dbias.values();
      run_in_any_order(kernel(MUSTER_KERNEL_LAYER_NORM_BACKWARD),
                       args_of({c.dy.view(), c.x.view(), c.weight.view(), c.mean.view(), c.rstd.view(),
                                c.dx.view(), c.dweight.view(), c.dbias.view()},
                               {add_dx, add_dweight}),
                       {&c.dx, &c.dweight, &c.dbias});
      expect_close(c.dx.values(), add_dx != 0 ? plus(g.dx, dx_before) : g.dx,
                   {2e-5, about(c.dtype).relative});
      expect_close(c.dweight.values(), add_dweight != 0 ? plus(g.dweight, dweight_before) : g.dweight,
                   about_columns(c, MUSTER_F32));
      expect_close(c.dbias.values(), add_dweight != 0 ? plus(g.dbias, dbias_before) : g.dbias,
                   about_columns(c, c.dtype));
    }
  });
}

TEST(LayerNorm, BackwardNeedsNoBias) {
  Random random(305);
  Case c({17, 33}, MUSTER_F32, Layout::kDense, random);
  const auto forward = twin::layer_norm(c.x.values(), c.weight.values(), {}, c.tokens, kEpsilon);
  c.mean.set(forward.mean);
  c.rstd.set(forward.rstd);
  const auto g =
      twin::layer_norm_backward(c.dy.values(), c.x.values(), c.weight.values(), c.tokens, kEpsilon);
  run_in_any_order(kernel(MUSTER_KERNEL_LAYER_NORM_BACKWARD),
                   args_of({c.dy.view(), c.x.view(), c.weight.view(), c.mean.view(), c.rstd.view(),
                            c.dx.view(), c.dweight.view(), Tensor{}},
                           {0, 0}),
                   {&c.dx, &c.dweight});
  expect_close(c.dweight.values(), g.dweight, about_columns(c, MUSTER_F32));
}

// Goal: the twins' gradients are those of their forwards.
TEST(NormTwin, BackwardIsTheSlopeOfForward) {
  Random random(306);
  constexpr std::size_t kTokens = 3;
  constexpr std::size_t kFeatures = 7;
  const Values x = random.uniforms(kTokens * kFeatures, -0.5, 1.5);
  const Values dy = random.uniforms(kTokens * kFeatures);
  const Values weight = random.uniforms(kFeatures, 0.5, 1.5);
  const Values bias = random.uniforms(kFeatures);

  const auto rms = twin::rms_norm_backward(dy, x, weight, kTokens, kEpsilon);
  const auto rms_loss = [&](const Values& at, const Values& w) {
    return twin::dot(twin::rms_norm(at, w, kTokens, kEpsilon).y, dy);
  };
  expect_close(rms.dx, twin::finite_difference([&](const Values& v) { return rms_loss(v, weight); }, x),
               {1e-8, 1e-8});
  expect_close(rms.dweight, twin::finite_difference([&](const Values& v) { return rms_loss(x, v); }, weight),
               {1e-8, 1e-8});

  const auto layer = twin::layer_norm_backward(dy, x, weight, kTokens, kEpsilon);
  const auto layer_loss = [&](const Values& at, const Values& w, const Values& b) {
    return twin::dot(twin::layer_norm(at, w, b, kTokens, kEpsilon).y, dy);
  };
  expect_close(layer.dx,
               twin::finite_difference([&](const Values& v) { return layer_loss(v, weight, bias); }, x),
               {1e-8, 1e-8});
  expect_close(layer.dweight,
               twin::finite_difference([&](const Values& v) { return layer_loss(x, v, bias); }, weight),
               {1e-8, 1e-8});
  expect_close(layer.dbias,
               twin::finite_difference([&](const Values& v) { return layer_loss(x, weight, v); }, bias),
               {1e-8, 1e-8});
}

// Goal: rows shared out over ranks give the bits of the whole.
TEST(RmsNorm, GivesARowTheSameBitsInAnyShard) {
  Random random(307);
  Case whole({100, 65}, MUSTER_F32, Layout::kPaddedRows, random);
  Args args =
      args_of({whole.x.view(), whole.weight.view(), whole.y.view(), whole.rstd.view()}, {}, {kEpsilon});
  run(kernel(MUSTER_KERNEL_RMS_NORM_FORWARD), args);
  const Values expected = whole.y.values();
  whole.y.set(Values(expected.size(), 0.0));
  for (const auto& [begin, end] : {std::pair{0, 37}, std::pair{37, 37}, std::pair{37, 100}}) {
    Args shard = args;
    for (const std::size_t operand : {0, 2, 3}) {
      shard.tensors[operand].data += begin * shard.tensors[operand].stride[0] * 4;
      shard.tensors[operand].size[0] = end - begin;
    }
    run(kernel(MUSTER_KERNEL_RMS_NORM_FORWARD), shard);
  }
  EXPECT_EQ(whole.y.values(), expected);
}

TEST(Norm, RefusesOperandsThatDoNotFitAndSaysWhich) {
  Random random(308);
  Case c({4, 6}, MUSTER_F32, Layout::kDense, random);
  OwnedTensor seven(MUSTER_F32, {7});
  OwnedTensor half(MUSTER_BF16, {4, 6});
  const Kernel& forward = kernel(MUSTER_KERNEL_RMS_NORM_FORWARD);
  expect_refused(forward, args_of({c.x.view(), seven.view(), c.y.view(), c.rstd.view()}, {}, {kEpsilon}),
                 "weight is [7], but x is [4, 6]");
  expect_refused(forward, args_of({c.x.view(), c.weight.view(), half.view(), c.rstd.view()}, {}, {kEpsilon}),
                 "y is bf16, but x is f32");
  expect_refused(forward, args_of({c.x.view(), c.weight.view(), c.y.view(), seven.view()}, {}, {kEpsilon}),
                 "rstd is [7]");
  expect_refused(forward, args_of({c.x.view(), c.weight.view(), c.y.view(), c.rstd.view()}, {}, {-1.0}),
                 "epsilon is -1");
  expect_refused(forward,
                 args_of({c.weight.view(), c.weight.view(), c.y.view(), c.rstd.view()}, {}, {kEpsilon}),
                 "x is [6] and has 1 dims");
  Args long_rows = args_of({c.x.view(), c.weight.view(), c.y.view(), c.rstd.view()}, {}, {kEpsilon});
  for (const std::size_t operand : {0, 2}) long_rows.tensors[operand].size = {1, (1 << 20) + 1};
  expect_refused(forward, long_rows, "its second size must lie in 0..1048576");
  expect_refused(
      kernel(MUSTER_KERNEL_LAYER_NORM_FORWARD),
      args_of({c.x.view(), c.weight.view(), seven.view(), c.y.view(), c.mean.view(), c.rstd.view()}, {},
              {kEpsilon}),
      "bias is [7]");
  expect_refused(
      kernel(MUSTER_KERNEL_LAYER_NORM_FORWARD),
      args_of({c.x.view(), c.weight.view(), c.weight.view(), c.y.view(), c.mean.view(), c.rstd.view()}, {},
              {-1.0}),
      "epsilon is -1");
  expect_refused(
      kernel(MUSTER_KERNEL_RMS_NORM_BACKWARD),
      args_of({c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(), c.dx.view(), c.dweight.view()},
              {2, 0}),
      "accumulate_dx is 2");
  expect_refused(kernel(MUSTER_KERNEL_LAYER_NORM_BACKWARD),
                 args_of({c.dy.view(), c.x.view(), c.weight.view(), c.mean.view(), c.rstd.view(), c.dx.view(),
                          c.dweight.view(), seven.view()},
                         {0, 0}),
                 "dbias is [7]");
}

}  // namespace
}  // namespace muster::kernels::test
