#include "kernels/elementwise/elementwise.hpp"

#include "api/base/dtype.hpp"
#include "kernels/check.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/elementwise.hpp"

#include <muster/kernels.h>

#include <cmath>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

const Kernel& row(std::int32_t op) {
  return row_of(elementwise::rows(), op);
}

// One spans three parts; some have as many dims as a tensor may have.
const std::vector<Shape> kShapes{{1},
                                 {3},
                                 {17},
                                 {129},
                                 {3, 17},
                                 {0, 5},
                                 {5, 0},
                                 {2, 3, 5, 7},
                                 {3, 129, 700},
                                 {2, 3, 1, 4, 5},
                                 {3, 2, 2, 1, 2, 3},
                                 {2, 1, 2, 3, 2, 2, 3},
                                 {2, 3, 2, 1, 2, 3, 2, 3},
                                 {1, 2, 0, 3, 1, 2, 1, 2},
                                 {}};

std::size_t count_of(const Shape& shape) {
  std::size_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  return n;
}

bool is_skipped(const Shape& shape, Layout layout) {
  return shape.size() == 3 && layout != Layout::kDense && layout != Layout::kPaddedRows;
}

TEST(Copy, CastsBetweenAllFloatsWithOneRounding) {
  Random random(11);
  for (const muster_dtype from : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}) {
    for (const muster_dtype to : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}) {
      SCOPED_TRACE(testing::Message() << "dtype " << from << " to " << to);
      OwnedTensor source(from, {129}, Layout::kDense, random.uniforms(129, -70000.0, 70000.0));
      OwnedTensor target(to, {129});
      run_in_any_order(row(MUSTER_KERNEL_COPY), args_of({source.view(), target.view()}), {&target});
      expect_close(target.values(), rounded(to, source.values()), {});
    }
  }
}

// Goal: packing and unpacking any layout is this one kernel, and what lies between the elements stays.
TEST(Copy, PacksAndUnpacksEveryPairOfLayouts) {
  Random random(12);
  for (const Shape& shape : kShapes) {
    for (const Layout from : kLayouts) {
      for (const Layout to : kLayouts) {
        if (is_skipped(shape, from) || is_skipped(shape, to)) continue;
        SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " " << layout_name(from) << " to "
                                        << layout_name(to));
        OwnedTensor source(MUSTER_BF16, shape, from, random.uniforms(count_of(shape)));
        OwnedTensor target(MUSTER_F32, shape, to);
        run_in_any_order(row(MUSTER_KERNEL_COPY), args_of({source.view(), target.view()}), {&target});
        EXPECT_EQ(target.values(), source.values());
      }
    }
  }
}

TEST(Copy, CopiesElementsOfEqualDtypeAndBroadcasts) {
  for (const muster_dtype dtype :
       {MUSTER_I32, MUSTER_I64, MUSTER_U8, MUSTER_I8, MUSTER_F8_E4M3, MUSTER_F8_E5M2}) {
    OwnedTensor source(dtype, {3}, Layout::kDense, {1, 112, 7});
    OwnedTensor target(dtype, {2, 3}, Layout::kPaddedRows);
    Tensor repeated = source.view();
    repeated.dims = 2;
    repeated.size = {2, 3, 0, 0};
    repeated.stride = {0, 1, 0, 0};
    run_in_any_order(row(MUSTER_KERNEL_COPY), args_of({repeated, target.view()}), {&target});
    EXPECT_EQ(target.values(), (Values{1, 112, 7, 1, 112, 7}));
  }
}

TEST(Copy, RefusesMixedIntegersOtherShapesAndOverlappingTargets) {
  OwnedTensor a(MUSTER_I32, {2, 3});
  OwnedTensor b(MUSTER_F32, {2, 3});
  OwnedTensor c(MUSTER_F32, {3, 2});
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({a.view(), b.view()}), "target is f32, but source is i32");
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({b.view(), a.view()}), "target is i32; it must be one of");
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({b.view(), c.view()}),
                 "target is [3, 2], but source is [2, 3]");
  Tensor overlapping = b.view();
  overlapping.stride[0] = 2;
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({b.view(), overlapping}), "must not overlap");
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({b.view(), Tensor{}}), "target is absent");
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({b.view()}), "1 operands were given; it takes 2");
  Tensor unknown = b.view();
  unknown.dtype = 99;
  expect_refused(row(MUSTER_KERNEL_COPY), args_of({unknown, unknown}), "source has dtype 99");
}

// Goal: 8-bit elements reach no kernel that computes, and the sentence names the dtype.
TEST(Copy, ConvertsNoEightBitFloats) {
  OwnedTensor wide(MUSTER_F32, {4});
  for (const muster_dtype dtype : {MUSTER_F8_E4M3, MUSTER_F8_E5M2, MUSTER_I8}) {
    OwnedTensor narrow(dtype, {4});
    const std::string name = dtype_name(dtype);
    expect_refused(row(MUSTER_KERNEL_COPY), args_of({wide.view(), narrow.view()}),
                   "target is " + name + "; it must be one of f32, bf16, f16, f64");
    expect_refused(row(MUSTER_KERNEL_COPY), args_of({narrow.view(), wide.view()}),
                   "target is f32, but source is " + name);
    expect_refused(row(MUSTER_KERNEL_SUM), args_of({narrow.view(), wide.view()}, {0}, {1.0}), "is " + name);
    expect_refused(row(MUSTER_KERNEL_AXPBY), args_of({wide.view(), narrow.view()}, {}, {1.0, 0.0}),
                   "is " + name);
  }
}

TEST(Fill, WritesEveryElementOfAnyDtypeAndLayout) {
  for (const Shape& shape : kShapes) {
    for (const Layout layout : kLayouts) {
      if (is_skipped(shape, layout)) continue;
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64, MUSTER_I32,
                                       MUSTER_I64, MUSTER_U8, MUSTER_I8, MUSTER_F8_E4M3, MUSTER_F8_E5M2}) {
        OwnedTensor target(dtype, shape, layout);
        run_in_any_order(row(MUSTER_KERNEL_FILL), args_of({target.view()}, {}, {40.0}), {&target});
        EXPECT_EQ(target.values(), Values(count_of(shape), 40.0));
      }
    }
  }
}

TEST(Fill, RefusesAValueThatTheIntegerDoesNotHold) {
  OwnedTensor bytes(MUSTER_U8, {4});
  OwnedTensor longs(MUSTER_I64, {4});
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({bytes.view()}, {}, {256.0}), "value is 256");
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({bytes.view()}, {}, {1.5}), "whole number");
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({bytes.view()}, {}, {-1.0}), "u8");
  OwnedTensor signed_bytes(MUSTER_I8, {4});
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({signed_bytes.view()}, {}, {128.0}), "i8");
  EXPECT_TRUE(validate(row(MUSTER_KERNEL_FILL), args_of({signed_bytes.view()}, {}, {-128.0})).ok());
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({longs.view()}, {}, {0x1p63}), "i64");
  expect_refused(row(MUSTER_KERNEL_FILL), args_of({longs.view()}, {}, {std::nan("")}), "nan");
  EXPECT_TRUE(validate(row(MUSTER_KERNEL_FILL), args_of({longs.view()}, {}, {-0x1p63})).ok());
}

// Tolerance: a·x, b·y and their sum each round in f32 (3 half units of at most 3.5), then the store rounds
// once.
TEST(Axpby, MatchesTheTwinForMixedDtypesAndLayouts) {
  Random random(21);
  for (const Shape& shape : kShapes) {
    for (const Layout layout : kLayouts) {
      if (is_skipped(shape, layout)) continue;
      for (const muster_dtype xd : {MUSTER_F32, MUSTER_BF16}) {
        for (const muster_dtype yd : {MUSTER_F32, MUSTER_BF16}) {
          SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " " << layout_name(layout)
                                          << " dtypes " << xd << " " << yd);
          OwnedTensor x(xd, shape, layout, random.uniforms(count_of(shape)));
          OwnedTensor y(yd, shape, Layout::kPaddedRows, random.uniforms(count_of(shape)));
          const Values expected = twin::axpby(1.5, x.values(), -2.0, y.values());
          run_in_any_order(row(MUSTER_KERNEL_AXPBY), args_of({x.view(), y.view()}, {}, {1.5, -2.0}), {&y});
          expect_close(y.values(), expected, {3 * 3.5 * 0x1p-24, 1.001 * half_ulp(yd)});
        }
      }
    }
  }
}

TEST(Axpby, DoesNotReadTheTargetWhenItsFactorIsZero) {
  OwnedTensor x(MUSTER_F32, {3}, Layout::kDense, {1, 2, 3});
  OwnedTensor y(MUSTER_F32, {3}, Layout::kDense, Values(3, std::nan("")));
  run_in_any_order(row(MUSTER_KERNEL_AXPBY), args_of({x.view(), y.view()}, {}, {2.0, 0.0}), {&y});
  EXPECT_EQ(y.values(), (Values{2, 4, 6}));
}

TEST(Axpby, RefusesOtherDtypesAndShapes) {
  OwnedTensor x(MUSTER_F32, {3});
  OwnedTensor y(MUSTER_F64, {3});
  OwnedTensor z(MUSTER_F32, {3, 1});
  expect_refused(row(MUSTER_KERNEL_AXPBY), args_of({x.view(), y.view()}), "y is f64");
  expect_refused(row(MUSTER_KERNEL_AXPBY), args_of({y.view(), x.view()}), "x is f64");
  expect_refused(row(MUSTER_KERNEL_AXPBY), args_of({x.view(), z.view()}), "y is [3, 1], but x is [3]");
}

// Tolerance: the rigorous bound of a chain of count/16 additions of values of at most 1, for each of the 16
// chains; that of a few parts is shorter.
TEST(Sum, MatchesTheTwinForEveryShapeLayoutAndDtype) {
  Random random(31);
  for (const Shape& shape : kShapes) {
    for (const Layout layout : kLayouts) {
      if (is_skipped(shape, layout)) continue;
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}) {
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(shape) << " " << layout_name(layout) << " " << dtype);
        OwnedTensor x(dtype, shape, layout, random.uniforms(count_of(shape)));
        OwnedTensor out(MUSTER_F64, {1}, Layout::kDense, {10.0});
        const auto count = static_cast<double>(count_of(shape));
        const double error = 0x1p-53 * (count / 16.0 + 8.0) * count;
        run_in_any_order(row(MUSTER_KERNEL_SUM), args_of({x.view(), out.view()}, {0}, {0.5}), {&out});
        expect_close(out.values(), {0.5 * twin::sum(x.values())}, {error, 1e-15});
        out.set({10.0});
        run_in_any_order(row(MUSTER_KERNEL_SUM_SQUARES), args_of({x.view(), out.view()}, {1}, {2.0}), {&out});
        expect_close(out.values(), {10.0 + 2.0 * twin::sum_squares(x.values())}, {2.0 * error, 1e-15});
      }
    }
  }
}

// Goal:   a count is exact, and neither the padding of lanes nor that of memory counts.
// Method: every third element is zero, of either sign.
TEST(CountZeros, MatchesTheTwinForEveryShapeLayoutAndDtype) {
  Random random(33);
  for (const Shape& shape : kShapes) {
    for (const Layout layout : kLayouts) {
      if (is_skipped(shape, layout)) continue;
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}) {
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(shape) << " " << layout_name(layout) << " " << dtype);
        Values values = random.uniforms(count_of(shape));
        for (std::size_t i = 0; i < values.size(); i += 3) values[i] = i % 2 == 0 ? 0.0 : -0.0;
        OwnedTensor x(dtype, shape, layout, values);
        OwnedTensor out(MUSTER_F64, {1}, Layout::kDense, {10.0});
        run_in_any_order(row(MUSTER_KERNEL_COUNT_ZEROS), args_of({x.view(), out.view()}, {1}, {2.0}), {&out});
        EXPECT_EQ(out.values(), Values{10.0 + 2.0 * twin::count_zeros(x.values())});
      }
    }
  }
}

// Goal: values that are not finite count as nonzero, and so does the smallest number.
TEST(CountZeros, CountsNothingButZeros) {
  const double infinity = std::numeric_limits<double>::infinity();
  OwnedTensor x(MUSTER_F32, {6}, Layout::kDense, {0.0, -0.0, std::nan(""), infinity, -infinity, 0x1p-149});
  OwnedTensor out(MUSTER_F64, {1});
  run(row(MUSTER_KERNEL_COUNT_ZEROS), args_of({x.view(), out.view()}, {0}, {1.0}));
  EXPECT_EQ(out.values(), Values{2.0});
}

// Goal:   the gradient norm of a parameter does not depend on how its memory is laid out.
TEST(Sum, GivesEqualBitsForEveryLayoutOfTheSameElements) {
  Random random(32);
  for (const Shape& shape : {Shape{37, 53}, Shape{3, 5, 7, 2}, Shape{2000, 3}, Shape{401, 700}}) {
    const Values values = random.uniforms(count_of(shape));
    for (const std::int32_t op : {MUSTER_KERNEL_SUM, MUSTER_KERNEL_SUM_SQUARES}) {
      Values results;
      for (const Layout layout : kLayouts) {
        OwnedTensor x(MUSTER_F32, shape, layout, values);
        OwnedTensor out(MUSTER_F64, {}, Layout::kDense);
        run(row(op), args_of({x.view(), out.view()}, {0}, {1.0}));
        results.push_back(out.values()[0]);
      }
      EXPECT_EQ(results, Values(results.size(), results[0]));
    }
  }
}

// Goal: an urgent task waits for one part of a long reduction, not for all of it.
TEST(Sum, OfManyElementsHasManyParts) {
  OwnedTensor x(MUSTER_F32, {1'000'000}, Layout::kDense, Values(1'000'000, 1.0));
  OwnedTensor out(MUSTER_F64, {1}, Layout::kDense, {1.0});
  const std::pair<std::int32_t, double> kResults[] = {{MUSTER_KERNEL_SUM, 2'000'001.0},
                                                      {MUSTER_KERNEL_SUM_SQUARES, 2'000'001.0},
                                                      {MUSTER_KERNEL_COUNT_ZEROS, 1.0}};
  for (const auto& [op, result] : kResults) {
    const Args args = args_of({x.view(), out.view()}, {1}, {2.0});
    EXPECT_EQ(row(op).parts(args), 8u);
    out.set({1.0});
    run_in_any_order(row(op), args, {&out});
    EXPECT_EQ(out.values(), Values{result});
  }
}

TEST(Sum, KeepsWhatAnF32SumWouldLose) {
  Values values(1000, 1.0);
  values[0] = 1e8;
  values[999] = -1e8;
  OwnedTensor x(MUSTER_F32, {1000}, Layout::kDense, values);
  OwnedTensor out(MUSTER_F32, {1});
  run(row(MUSTER_KERNEL_SUM), args_of({x.view(), out.view()}, {0}, {1.0}));
  EXPECT_EQ(out.values(), Values{998.0});
}

TEST(Sum, RefusesWrongOutputs) {
  OwnedTensor x(MUSTER_F32, {3});
  OwnedTensor ids(MUSTER_I32, {3});
  OwnedTensor two(MUSTER_F32, {2});
  OwnedTensor half(MUSTER_BF16, {1});
  OwnedTensor one(MUSTER_F32, {1});
  expect_refused(row(MUSTER_KERNEL_SUM), args_of({x.view(), two.view()}),
                 "out is [2]: it must have 1 element");
  expect_refused(row(MUSTER_KERNEL_SUM), args_of({x.view(), half.view()}), "out is bf16");
  expect_refused(row(MUSTER_KERNEL_COUNT_ZEROS), args_of({ids.view(), one.view()}), "count_zeros: x is i32");
  expect_refused(row(MUSTER_KERNEL_SUM_SQUARES), args_of({ids.view(), one.view()}), "x is i32");
  expect_refused(row(MUSTER_KERNEL_SUM_SQUARES), args_of({x.view(), one.view()}, {2}), "accumulate is 2");
}

TEST(ClipCoefficient, MatchesTheTwin) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double square_sum : {0.0, 0.25, 1.0, 4.0, 1e6, infinity, std::nan("")}) {
    for (const double max_norm : {-1.0, 0.0, 0.5, 1.0, 10.0, infinity}) {
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_F64}) {
        SCOPED_TRACE(testing::Message() << square_sum << " " << max_norm);
        OwnedTensor sum(dtype, {1}, Layout::kDense, {square_sum});
        OwnedTensor out(MUSTER_F32, {2}, Layout::kSpacedInner);
        run_in_any_order(row(MUSTER_KERNEL_CLIP_COEFFICIENT),
                         args_of({sum.view(), out.view()}, {}, {max_norm}), {&out});
        const auto expected = twin::clip_coefficient(square_sum, max_norm);
        expect_close(out.values(), {expected[0], expected[1]}, {0.0, 0x1p-23});
      }
    }
  }
}

TEST(ClipCoefficient, RefusesOtherShapesAndANaN) {
  OwnedTensor sum(MUSTER_F32, {1});
  OwnedTensor out(MUSTER_F32, {2});
  OwnedTensor wide(MUSTER_F32, {3});
  OwnedTensor wrong(MUSTER_F64, {2});
  const Kernel& clip = row(MUSTER_KERNEL_CLIP_COEFFICIENT);
  expect_refused(clip, args_of({sum.view(), wide.view()}), "out is [3]: its first size must be 2");
  expect_refused(clip, args_of({sum.view(), wrong.view()}), "out is f64; it must be f32");
  expect_refused(clip, args_of({out.view(), out.view()}), "square_sum is [2]");
  expect_refused(clip, args_of({sum.view(), out.view()}, {}, {std::nan("")}), "max_norm is NaN");
}

}  // namespace
}  // namespace muster::kernels::test
