#include "kernels/optimiser/optimiser.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/optimiser.hpp"

#include <muster/kernels.h>

#include <cmath>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

const Kernel& adamw() {
  return row_of(optimiser::rows(), MUSTER_KERNEL_ADAMW);
}

constexpr twin::Adamw kOptions{3e-3, 0.9, 0.95, 1e-8, 0.1};

std::initializer_list<double> reals() {
  static const std::initializer_list<double> values{kOptions.learning_rate, kOptions.beta1, kOptions.beta2,
                                                    kOptions.epsilon, kOptions.weight_decay};
  return values;
}

// The four vectors of one parameter and the state, each with its own layout.
struct Parameter {
  Parameter(const Shape& shape, Layout layout, Random& random)
      : param(MUSTER_F32, shape, layout, random.uniforms(count(shape))),
        grad(MUSTER_F32, shape, Layout::kPaddedRows, random.uniforms(count(shape), -3.0, 3.0)),
        m(MUSTER_F32, shape, Layout::kDense, random.uniforms(count(shape), -0.1, 0.1)),
        v(MUSTER_F32, shape, layout, random.uniforms(count(shape), 0.0, 0.1)),
        state(MUSTER_F32, {3}, Layout::kSpacedInner, {0.5, 7.0, 0.25}) {}

  static std::size_t count(const Shape& shape) {
    std::size_t n = 1;
    for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
    return n;
  }
  Args args() { return args_of({param.view(), grad.view(), m.view(), v.view(), state.view()}, {}, reals()); }

  OwnedTensor param, grad, m, v, state;
};

// Tolerance: m and v round a few times relative to their terms; the update rounds about eight times relative
// to itself, and the parameter once.
TEST(Adamw, MatchesTheTwinForEveryShapeAndLayout) {
  Random random(41);
  for (const Shape& shape :
       {Shape{1}, Shape{3}, Shape{17}, Shape{129}, Shape{5, 17}, Shape{0}, Shape{3, 0}, Shape{},
        Shape{70, 1000}, Shape{2, 3, 5, 7}, Shape{2, 1, 3, 2, 2}, Shape{2, 3, 1, 2, 3, 2, 2, 3}}) {
    for (const Layout layout : kLayouts) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " " << layout_name(layout));
      Parameter p(shape, layout, random);
      const auto expected = twin::adamw(kOptions, {0.5, 7.0, 0.25},
                                        {p.param.values(), p.m.values(), p.v.values()}, p.grad.values());
      run_in_any_order(adamw(), p.args(), {&p.param, &p.m, &p.v});
      expect_close(p.m.values(), expected.m, {3 * 0.2 * 0x1p-24, 0x1p-24});
      expect_close(p.v.values(), expected.v, {0.0, 6 * 0x1p-24});
      expect_close(p.param.values(), expected.param, {1e-8, 0x1p-24});
    }
  }
}

// Goal:   a shard updates its part of a parameter exactly as the whole would be.
// Method: one run on the whole, then runs on pieces cut at odd places; equal bits.
TEST(Adamw, GivesEqualBitsHoweverTheParameterIsCut) {
  constexpr std::int64_t kCount = 40001;
  Random first(42);
  Random again(42);
  Parameter whole({kCount}, Layout::kDense, first);
  Parameter cut({kCount}, Layout::kDense, again);
  run(adamw(), whole.args());
  const std::vector<std::int64_t> at{0, 1, 7, 1000, 1003, 33333, kCount};
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    Args args = cut.args();
    for (std::size_t operand = 0; operand < 4; ++operand) {
      args.tensors[operand].data += at[i] * args.tensors[operand].stride[0] * 4;
      args.tensors[operand].size[0] = at[i + 1] - at[i];
    }
    run(adamw(), args);
  }
  EXPECT_TRUE(whole.param.bytes() == cut.param.bytes());
  EXPECT_TRUE(whole.m.bytes() == cut.m.bytes());
  EXPECT_TRUE(whole.v.bytes() == cut.v.bytes());
}

// Goal: the state is read when the kernel runs, so that one plan serves all steps.
TEST(Adamw, FollowsTheStateOverManyStepsOfOnePlan) {
  Random random(43);
  Parameter p({17}, Layout::kDense, random);
  twin::AdamwVectors expected{p.param.values(), Values(17, 0.0), Values(17, 0.0)};
  p.m.set(expected.m);
  p.v.set(expected.v);
  const Args args = p.args();
  for (int step = 1; step <= 50; ++step) {
    const double rate = step < 10 ? step / 10.0 : 1.0;
    p.state.set({rate, static_cast<double>(step), 0.5});
    p.grad.set(random.uniforms(17));
    expected = twin::adamw(kOptions, {static_cast<float>(rate), static_cast<double>(step), 0.5}, expected,
                           p.grad.values());
    run(adamw(), args);
  }
  expect_close(p.param.values(), expected.param, {1e-6, 0.0});
}

TEST(Adamw, CarriesANotFiniteGradientIntoTheParameter) {
  Random random(44);
  Parameter p({3}, Layout::kDense, random);
  p.grad.set({0.1, std::nan(""), 0.2});
  run(adamw(), p.args());
  EXPECT_FALSE(std::isnan(p.param.values()[0]));
  EXPECT_TRUE(std::isnan(p.param.values()[1]));
}

TEST(Adamw, RefusesOperandsAndOptionsThatDoNotFit) {
  Random random(45);
  Parameter p({4}, Layout::kDense, random);
  OwnedTensor half(MUSTER_BF16, {4});
  OwnedTensor longer(MUSTER_F32, {5});
  static constexpr std::array<const char*, 5> kNames{"param", "grad", "m", "v", "state"};
  for (std::size_t operand = 0; operand < kNames.size(); ++operand) {
    Args args = p.args();
    args.tensors[operand] = half.view();
    expect_refused(adamw(), args, std::string(kNames[operand]) + " is bf16; it must be f32");
    if (operand == 0) continue;
    args.tensors[operand] = longer.view();
    expect_refused(adamw(), args, std::string(kNames[operand]) + " is [5]");
  }
  const auto refuse = [&](std::size_t real, double value, const char* needle) {
    Args args = p.args();
    args.reals[real] = value;
    expect_refused(adamw(), args, needle);
  };
  refuse(0, std::nan(""), "learning_rate is nan");
  refuse(1, 1.0, "beta1 is 1");
  refuse(2, -0.5, "beta2 is -0.5");
  refuse(3, -1.0, "epsilon is -1");
  refuse(4, HUGE_VAL, "weight_decay is inf");
}

}  // namespace
}  // namespace muster::kernels::test
