#include "kernels/loss/loss.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"
#include "tests/kernels/families/twin/loss.hpp"

#include <muster/kernels.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr double kScale = 0.125;

const Kernel& kernel(std::int32_t op) {
  return row_of(loss::rows(), op);
}

struct Size {
  std::int64_t tokens, columns;
};
// Odd, empty, wider than a block of a sum, and cut into several parts.
constexpr Size kSizes[] = {{1, 1}, {3, 17}, {17, 3}, {129, 129}, {0, 5}, {5, 2500}, {400, 300}};

// Targets within the columns; about one in four is ignored.
Values targets_for(Size size, Random& random) {
  Values targets;
  for (std::int64_t t = 0; t < size.tokens; ++t)
    targets.push_back(random.integer(0, 3) == 0 ? -1.0
                                                : static_cast<double>(random.integer(0, size.columns - 1)));
  return targets;
}

struct Case {
  Case(Size size, muster_dtype dtype_, Layout layout, Random& random)
      : dtype(dtype_),
        logits(dtype, {size.tokens, size.columns}, layout,
               random.uniforms(static_cast<std::size_t>(size.tokens * size.columns), -8.0, 8.0)),
        targets(MUSTER_I32, {size.tokens}, Layout::kSpacedInner, targets_for(size, random)),
        loss(MUSTER_F32, {size.tokens}, Layout::kSpacedInner),
        lse(MUSTER_F32, {size.tokens}, Layout::kDense),
        dlogits(dtype, {size.tokens, size.columns}, Layout::kPaddedRows) {}

  Args forward() { return args_of({logits.view(), targets.view(), loss.view(), lse.view()}); }
  Args backward(OwnedTensor& gradient) {
    return args_of({logits.view(), targets.view(), lse.view(), gradient.view()}, {}, {kScale});
  }

  muster_dtype dtype;
  OwnedTensor logits, targets, loss, lse, dlogits;
};

Tolerance about_gradient(muster_dtype dtype) {
  return {3e-7, dtype == MUSTER_F32 ? 3e-6 : half_ulp(dtype)};
}

TEST(CrossEntropy, MatchesTheTwinForEveryShapeAndLayout) {
  Random random(601);
  for (const Size size : kSizes)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(testing::Message() << size.tokens << "x" << size.columns << " " << layout_name(layout)
                                        << " dtype " << dtype);
        Case c(size, dtype, layout, random);
        const auto expected = twin::cross_entropy(c.logits.values(), c.targets.values());
        run_in_any_order(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD), c.forward(), {&c.loss, &c.lse});
        expect_close(c.loss.values(), expected.loss, {1e-6, 1e-6});
        expect_close(c.lse.values(), expected.lse, {1e-7, 1e-6});
        const Values gradient = twin::cross_entropy_backward(c.logits.values(), c.targets.values(), kScale);
        run_in_any_order(kernel(MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD), c.backward(c.dlogits), {&c.dlogits});
        expect_close(c.dlogits.values(), gradient, about_gradient(dtype));
      }
}

TEST(CrossEntropy, TakesItsGradientInTheLogitsOwnMemory) {
  Random random(602);
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
    for (const Layout layout : kLayouts) {
      Case c({33, 65}, dtype, layout, random);
      const Values gradient = twin::cross_entropy_backward(c.logits.values(), c.targets.values(), kScale);
      run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD), c.forward());
      run_in_any_order(kernel(MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD), c.backward(c.logits), {&c.logits});
      expect_close(c.logits.values(), gradient, about_gradient(dtype));
    }
}

TEST(CrossEntropy, GivesNanForATargetThatIsNoColumnAndKeepsOtherRowsRight) {
  OwnedTensor logits(MUSTER_F32, {4, 3}, Layout::kDense, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  OwnedTensor targets(MUSTER_I32, {4}, Layout::kDense, {2, 3, -2, -1});
  OwnedTensor loss(MUSTER_F32, {4});
  OwnedTensor lse(MUSTER_F32, {4});
  OwnedTensor dlogits(MUSTER_F32, {4, 3});
  run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD),
      args_of({logits.view(), targets.view(), loss.view(), lse.view()}));
  run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD),
      args_of({logits.view(), targets.view(), lse.view(), dlogits.view()}, {}, {1.0}));
  const auto expected = twin::cross_entropy(logits.values(), targets.values());
  EXPECT_TRUE(std::isnan(expected.loss[1]) && std::isnan(expected.loss[2]));
  expect_close(loss.values(), expected.loss, {1e-6, 1e-6});
  expect_close(dlogits.values(), twin::cross_entropy_backward(logits.values(), targets.values(), 1.0),
               {1e-6, 1e-6});
}

TEST(CrossEntropy, SurvivesLogitsThatWouldOverflow) {
  OwnedTensor logits(MUSTER_F32, {2, 3}, Layout::kDense, {1e4, 0.0, -1e4, 3e38, -3e38, 0.0});
  OwnedTensor targets(MUSTER_I32, {2}, Layout::kDense, {1, 0});
  OwnedTensor loss(MUSTER_F32, {2});
  OwnedTensor lse(MUSTER_F32, {2});
  run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD),
      args_of({logits.view(), targets.view(), loss.view(), lse.view()}));
  expect_close(loss.values(), {1e4, 0.0}, {0.0, 1e-6});
}

TEST(CrossEntropy, OfNoColumnsHasNoLossButForBadTargets) {
  OwnedTensor logits(MUSTER_F32, {2, 0});
  OwnedTensor targets(MUSTER_I32, {2}, Layout::kDense, {-1, 0});
  OwnedTensor loss(MUSTER_F32, {2});
  OwnedTensor lse(MUSTER_F32, {2});
  run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD),
      args_of({logits.view(), targets.view(), loss.view(), lse.view()}));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_close(lse.values(), {-kInfinity, -kInfinity}, {});
  expect_close(loss.values(), {0.0, std::numeric_limits<double>::quiet_NaN()}, {});
}

// The ranks of a vocabulary group in one process: each has its columns, and the all-reduces are loops in rank
// order.
class Vocabulary {
 public:
  Vocabulary(Case& c, std::vector<std::int64_t> widths) : case_(c), widths_(std::move(widths)) {}

  // Leaves loss and dlogits in the outputs.
  void run_all(OwnedTensor& loss, OwnedTensor& dlogits) {
    const std::int64_t tokens = case_.logits.shape()[0];
    const auto n = static_cast<std::size_t>(tokens);
    Values maxima(n, -std::numeric_limits<double>::infinity());
    each([&](std::size_t, std::int64_t, const Tensor& logits) {
      OwnedTensor row_max(MUSTER_F32, {tokens}, Layout::kSpacedInner);
      run_in_any_order(kernel(MUSTER_KERNEL_VOCAB_MAX), args_of({logits, row_max.view()}), {&row_max});
      const Values local = row_max.values();
      for (std::size_t t = 0; t < n; ++t) maxima[t] = std::fmax(maxima[t], local[t]);
    });
    OwnedTensor row_max(MUSTER_F32, {tokens}, Layout::kSpacedInner, maxima);

    Values sums(2 * n, 0.0);
    each([&](std::size_t, std::int64_t offset, const Tensor& logits) {
      OwnedTensor stats(MUSTER_F32, {tokens, 2}, Layout::kTransposed);
      run_in_any_order(kernel(MUSTER_KERNEL_VOCAB_SUM_EXP),
                       args_of({logits, case_.targets.view(), row_max.view(), stats.view()}, {offset}),
                       {&stats});
      const Values local = stats.values();
      for (std::size_t i = 0; i < 2 * n; ++i)
        sums[i] = static_cast<double>(static_cast<float>(sums[i]) + static_cast<float>(local[i]));
    });
    OwnedTensor stats(MUSTER_F32, {tokens, 2}, Layout::kPaddedRows, sums);

    run_in_any_order(kernel(MUSTER_KERNEL_VOCAB_LOSS),
                     args_of({stats.view(), case_.targets.view(), loss.view()}), {&loss});
    each([&](std::size_t, std::int64_t offset, const Tensor& logits) {
      const std::int64_t width = logits.size[1];
      run_in_any_order(kernel(MUSTER_KERNEL_VOCAB_BACKWARD),
                       args_of({logits, case_.targets.view(), row_max.view(), stats.view(),
                                columns(dlogits.view(), offset, width)},
                               {offset}, {kScale}),
                       {&dlogits});
    });
  }

 private:
  static Tensor columns(Tensor t, std::int64_t begin, std::int64_t width) {
    t.data += begin * t.stride[1] * (t.dtype == MUSTER_F32 ? 4 : 2);
    t.size[1] = width;
    return t;
  }
  template<class F>
  void each(F&& f) {
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < widths_.size(); offset += widths_[rank++])
      f(rank, offset, columns(case_.logits.view(), offset, widths_[rank]));
  }

  Case& case_;
  std::vector<std::int64_t> widths_;
};

// Goal: uneven and empty shards together give the dense loss and gradient.
TEST(VocabularyLoss, OverShardsEqualsTheDenseLoss) {
  Random random(603);
  const struct {
    Size size;
    std::vector<std::int64_t> widths;
  } cases[] = {{{37, 10}, {4, 4, 2}},         {{37, 10}, {10}}, {{5, 3}, {1, 1, 1, 0}}, {{5, 3}, {0, 3, 0}},
               {{200, 515}, {200, 200, 115}}, {{0, 6}, {3, 3}}};
  for (const auto& [size, widths] : cases)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(widths) << " " << layout_name(layout) << " dtype " << dtype);
        Case c(size, dtype, layout, random);
        Vocabulary(c, widths).run_all(c.loss, c.dlogits);
        const auto expected = twin::cross_entropy(c.logits.values(), c.targets.values());
        expect_close(c.loss.values(), expected.loss, {2e-6, 1e-6});
        expect_close(c.dlogits.values(),
                     twin::cross_entropy_backward(c.logits.values(), c.targets.values(), kScale),
                     about_gradient(dtype));
        EXPECT_TRUE(c.dlogits.padding_intact());

        OwnedTensor dense_loss(MUSTER_F32, {size.tokens});
        run(kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD),
            args_of({c.logits.view(), c.targets.view(), dense_loss.view(), c.lse.view()}));
        expect_close(c.loss.values(), dense_loss.values(), {1e-6, 1e-6});

        if (size.tokens > 0) {
          const Values gradient = c.dlogits.values();
          Vocabulary(c, widths).run_all(c.loss, c.dlogits);
          EXPECT_EQ(c.dlogits.values(), gradient);
        }
      }
}

// Goal:   the header's rule for a target that no shard owns: below -1 the loss is NaN; above the range it is
//         as if the target's logit were the row's maximum.
TEST(VocabularyLoss, DoesNotFindOutATargetThatIsTooLarge) {
  Random random(604);
  Case c({4, 10}, MUSTER_F32, Layout::kDense, random);
  c.targets.set({3, 10, -2, -1});
  Vocabulary(c, {4, 4, 2}).run_all(c.loss, c.dlogits);
  const Values logits = c.logits.values();
  const Values loss = c.loss.values();
  const Values gradient = c.dlogits.values();
  const auto row = logits.begin() + 10;
  const double largest = *std::max_element(row, row + 10);
  double sum = 0;
  for (int k = 0; k < 10; ++k) sum += std::exp(row[k] - largest);
  EXPECT_NEAR(loss[1], std::log(sum), 1e-5);
  for (int k = 0; k < 10; ++k)
    EXPECT_NEAR(gradient[static_cast<std::size_t>(10 + k)], kScale * std::exp(row[k] - largest) / sum, 1e-5);
  EXPECT_TRUE(std::isnan(loss[2]) && std::isnan(gradient[20]));
  EXPECT_EQ(loss[3], 0.0);
  EXPECT_EQ(gradient[30], 0.0);
}

TEST(VocabularyLoss, TakesItsGradientInTheLogitsOwnMemory) {
  Random random(604);
  for (const Layout layout : kLayouts) {
    Case c({9, 21}, MUSTER_F32, layout, random);
    const auto expected = twin::cross_entropy_backward(c.logits.values(), c.targets.values(), kScale);
    OwnedTensor row_max(MUSTER_F32, {9});
    OwnedTensor stats(MUSTER_F32, {9, 2});
    run(kernel(MUSTER_KERNEL_VOCAB_MAX), args_of({c.logits.view(), row_max.view()}));
    run(kernel(MUSTER_KERNEL_VOCAB_SUM_EXP),
        args_of({c.logits.view(), c.targets.view(), row_max.view(), stats.view()}, {0}));
    run_in_any_order(
        kernel(MUSTER_KERNEL_VOCAB_BACKWARD),
        args_of({c.logits.view(), c.targets.view(), row_max.view(), stats.view(), c.logits.view()}, {0},
                {kScale}),
        {&c.logits});
    expect_close(c.logits.values(), expected, about_gradient(MUSTER_F32));
  }
}

TEST(LossTwin, BackwardIsTheSlopeOfForward) {
  Random random(605);
  const Values logits = random.uniforms(5 * 7, -3.0, 3.0);
  const Values targets{0, 6, -1, 3, 3};
  const auto total = [&](const Values& v) {
    double sum = 0.0;
    for (const double l : twin::cross_entropy(v, targets).loss) sum += kScale * l;
    return sum;
  };
  expect_close(twin::cross_entropy_backward(logits, targets, kScale), twin::finite_difference(total, logits),
               {1e-9, 1e-9});
}

TEST(Loss, RefusesOperandsThatDoNotFitAndSaysWhich) {
  Random random(606);
  Case c({4, 6}, MUSTER_F32, Layout::kDense, random);
  OwnedTensor five(MUSTER_I32, {5});
  OwnedTensor reals(MUSTER_F32, {4});
  OwnedTensor triples(MUSTER_F32, {4, 3});
  OwnedTensor half(MUSTER_BF16, {4, 6});
  const Kernel& forward = kernel(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD);
  expect_refused(forward, args_of({c.logits.view(), five.view(), c.loss.view(), c.lse.view()}),
                 "targets is [5], but logits is [4, 6]");
  expect_refused(forward, args_of({c.logits.view(), reals.view(), c.loss.view(), c.lse.view()}),
                 "targets is f32");
  expect_refused(forward, args_of({reals.view(), c.targets.view(), c.loss.view(), c.lse.view()}),
                 "logits is [4] and has 1 dims");
  Tensor long_rows = c.logits.view();
  long_rows.size[1] = (1 << 20) + 1;
  expect_refused(forward, args_of({long_rows, c.targets.view(), c.loss.view(), c.lse.view()}),
                 "its second size must lie in 0..1048576");
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_MAX), args_of({long_rows, c.lse.view()}),
                 "its second size must lie in 0..1048576");
  expect_refused(kernel(MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD), c.backward(half), "dlogits is bf16");
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_MAX), args_of({c.logits.view(), five.view()}), "row_max is [5]");
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_SUM_EXP),
                 args_of({c.logits.view(), c.targets.view(), reals.view(), triples.view()}, {0}),
                 "stats is [4, 3]: its second size must be 2");
  OwnedTensor stats(MUSTER_F32, {4, 2});
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_SUM_EXP),
                 args_of({c.logits.view(), c.targets.view(), reals.view(), stats.view()}, {-4}),
                 "vocab_offset is -4");
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_LOSS), args_of({stats.view(), five.view(), c.loss.view()}),
                 "targets is [5]");
  expect_refused(kernel(MUSTER_KERNEL_VOCAB_BACKWARD),
                 args_of({c.logits.view(), c.targets.view(), reals.view(), stats.view(), c.dlogits.view()},
                         {0}, {std::numeric_limits<double>::infinity()}),
                 "scale is inf");
}

}  // namespace
}  // namespace muster::kernels::test
