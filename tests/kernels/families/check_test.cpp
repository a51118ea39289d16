#include "kernels/check.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr std::array<Operand, 3> kOperands{
    {{"x", Operand::kRead}, {"bias", Operand::kRead, true}, {"y", Operand::kWrite}}};

Status accept(const Args&) {
  return {};
}

const Kernel kProbe{1, "probe", kOperands, 1, 1, accept, nullptr};

struct Probe {
  OwnedTensor x{MUSTER_F32, {32, 65}};
  OwnedTensor y{MUSTER_BF16, {128, 64}};
  Args args = args_of({x.view(), Tensor{}, y.view()}, {5}, {std::nan("")});
  Subject subject{"probe", kOperands, args};
};

// Goal: a person reads what was given, what was expected and of which operand.
TEST(Check, SaysWhatIsWrongInOneSentence) {
  const Probe p;
  const Subject& s = p.subject;
  EXPECT_EQ(expect_dims(s, 0, 3).message(), "probe: x is [32, 65] and has 2 dims; it must have 3");
  EXPECT_EQ(expect_dtype_in(s, 2, {MUSTER_F32, MUSTER_I64}).message(),
            "probe: y is bf16; it must be one of f32, i64");
  EXPECT_EQ(expect_dtype_in(s, 2, {MUSTER_U8}).message(), "probe: y is bf16; it must be u8");
  EXPECT_EQ(expect_same_dtype(s, 2, 0).message(),
            "probe: y is bf16, but x is f32: their dtypes must be equal");
  EXPECT_EQ(expect_same_shape(s, 2, 0).message(),
            "probe: y is [128, 64], but x is [32, 65]: their shapes must be equal");
  EXPECT_EQ(expect_size(s, 0, -1, 7).message(), "probe: x is [32, 65]: its second size must be 7");
  EXPECT_EQ(expect_size_in(s, 0, -1, 1, 64).message(),
            "probe: x is [32, 65]: its second size must lie in 1..64");
  EXPECT_EQ(expect_equal_size(s, 2, -1, 0, 1).message(),
            "probe: y is [128, 64], but x is [32, 65]: y's second size must equal x's second");
  EXPECT_EQ(expect_count(s, 0, 1).message(), "probe: x is [32, 65]: it must have 1 element");
  EXPECT_EQ(expect_int(s, 0, "flag", 0, 1).message(), "probe: flag is 5; it must lie in 0..1");
  EXPECT_EQ(expect_finite(s, 0, "scale").message(), "probe: scale is nan; it must be finite");
  EXPECT_EQ(shape_text(Tensor{}), "a scalar");
  EXPECT_EQ(dtype_text(-3), "dtype -3");
}

TEST(Check, PassesWhatIsRightAndWhatIsAbsent) {
  const Probe p;
  const Subject& s = p.subject;
  EXPECT_TRUE(expect_dims(s, 0, 2).ok());
  EXPECT_TRUE(expect_size(s, 0, 0, 32).ok());
  EXPECT_TRUE(expect_size(s, 0, -1, 65).ok());
  EXPECT_TRUE(expect_size_in(s, 0, 0, 32, 32).ok());
  EXPECT_TRUE(expect_size_in(s, 1, 0, 7, 8).ok());
  EXPECT_TRUE(expect_count(s, 0, 32 * 65).ok());
  EXPECT_TRUE(expect_int(s, 0, "flag", 5, 5).ok());
  EXPECT_TRUE(expect_dims(s, 1, 2).ok());
  EXPECT_TRUE(expect_size(s, 1, 0, 9).ok());
  EXPECT_TRUE(expect_same_shape(s, 1, 0).ok());
  EXPECT_TRUE(expect_same_dtype(s, 1, 0).ok());
  EXPECT_TRUE(expect_dtype_in(s, 1, {MUSTER_U8}).ok());
  EXPECT_TRUE(expect_equal_size(s, 1, 0, 0, 0).ok());
}

TEST(Validate, ChecksPresenceDtypeDimsAndCountOfOperands) {
  Probe p;
  EXPECT_TRUE(validate(kProbe, p.args).ok());
  Args args = p.args;
  args.tensors.pop_back();
  expect_refused(kProbe, args, "2 operands were given; it takes 3");
  args = p.args;
  args.tensors[0] = {};
  expect_refused(kProbe, args, "x is absent");
  args = p.args;
  args.tensors[2].dtype = 0;
  expect_refused(kProbe, args, "y has dtype 0");
  args = p.args;
  for (const std::int32_t dims : {9, -1, INT32_MAX, INT32_MIN}) {
    args.tensors[0].dims = dims;
    expect_refused(kProbe, args, "x has " + std::to_string(dims) + " dims; 0..8 are possible");
  }
}

// Goal: a kernel reads as many numbers as it takes, so it gets neither fewer nor more.
TEST(Validate, ChecksTheCountOfNumbers) {
  Probe p;
  p.args.ints = {1, 2};
  expect_refused(kProbe, p.args, "2 ints and 1 reals were given; it takes 1 and 1");
  p.args.ints = {1};
  p.args.reals = {1.0, 2.0};
  expect_refused(kProbe, p.args, "1 ints and 2 reals were given; it takes 1 and 1");
  p.args.reals.clear();
  EXPECT_EQ(validate(kProbe, p.args).message(), "probe: 1 ints and 0 reals were given; it takes 1 and 1");
}

// Goal: two parts never write one element, so an output whose elements share addresses is refused; an input
//       may repeat.
TEST(Validate, RefusesOutputsWhoseElementsOverlap) {
  Probe p;
  using Entries = decltype(Tensor::size);
  const auto with = [&](std::size_t operand, const Entries& size, const Entries& stride) {
    Args args = p.args;
    args.tensors[operand].dims = 2;
    args.tensors[operand].size = size;
    args.tensors[operand].stride = stride;
    return args;
  };
  expect_refused(kProbe, with(2, {4, 3}, {0, 1}), "y is [4, 3] with strides [0, 1]");
  expect_refused(kProbe, with(2, {4, 3}, {2, 1}), "must not overlap");
  expect_refused(kProbe, with(2, {3, 4}, {1, 2}), "must not overlap");
  EXPECT_TRUE(validate(kProbe, with(0, {4, 3}, {0, 1})).ok());
  EXPECT_TRUE(validate(kProbe, with(2, {4, 3}, {3, 1})).ok());
  EXPECT_TRUE(validate(kProbe, with(2, {4, 3}, {1, 4})).ok());
  EXPECT_TRUE(validate(kProbe, with(2, {1, 3}, {0, 1})).ok());
  EXPECT_TRUE(validate(kProbe, with(2, {4, 0}, {0, 0})).ok());
}

// Goal: an output lies apart from every other operand, to the element.
TEST(Validate, RefusesOutputsThatOverlapOtherOperands) {
  OwnedTensor memory(MUSTER_F32, {100});
  const auto view = [&](std::int64_t first, std::int64_t count, std::int64_t stride = 1) {
    Tensor t = memory.view();
    t.data += static_cast<std::size_t>(first) * sizeof(float);
    t.size[0] = count;
    t.stride[0] = stride;
    return t;
  };
  const auto args = [](Tensor x, Tensor bias, Tensor y) { return args_of({x, bias, y}, {5}, {0.0}); };
  EXPECT_TRUE(validate(kProbe, args(view(0, 50), view(0, 20), view(50, 50))).ok()) << "inputs may overlap";
  EXPECT_TRUE(validate(kProbe, args(view(0, 50, 2), {}, view(1, 50, 2))).ok()) << "they interleave";
  EXPECT_TRUE(validate(kProbe, args(view(0, 50), {}, view(10, 0))).ok()) << "nothing is written";
  expect_refused(kProbe, args(view(0, 50), {}, view(49, 50)), "probe: y and x overlap");
  expect_refused(kProbe, args(view(0, 50, 2), {}, view(2, 4, 3)), "y and x overlap");
  expect_refused(kProbe, args(view(0, 10), view(60, 1), view(50, 50)), "y and bias overlap");
  expect_refused(kProbe, args(view(0, 50), {}, view(0, 50)), "y and x overlap");
  Tensor halves = view(0, 50);
  halves.dtype = MUSTER_BF16;
  EXPECT_TRUE(validate(kProbe, args(halves, {}, view(25, 50))).ok());
  expect_refused(kProbe, args(halves, {}, view(24, 50)), "y and x overlap");
}

// Goal: an elementwise kernel may write exactly where it reads, but not to an overlapping other view.
TEST(Validate, TakesTheVeryViewInPlace) {
  const Kernel in_place{1, "probe", kOperands, 1, 1, accept, nullptr, {}, 0};
  OwnedTensor memory(MUSTER_F32, {100});
  Tensor x = memory.view();
  x.size[0] = 50;
  EXPECT_TRUE(validate(in_place, args_of({x, Tensor{}, x}, {5}, {0.0})).ok());
  Tensor same = x;
  same.size[3] = 7;
  same.stride[2] = 9;
  EXPECT_TRUE(validate(in_place, args_of({x, Tensor{}, same}, {5}, {0.0})).ok()) << "it has one dim";
  Tensor other = memory.view();
  other.data += 60 * sizeof(float);
  other.size[0] = 1;
  expect_refused(in_place, args_of({x, other, other}, {5}, {0.0}), "y and bias overlap");
  Tensor later = x;
  later.data += sizeof(float);
  expect_refused(in_place, args_of({x, Tensor{}, later}, {5}, {0.0}), "y and x overlap");
  Tensor sparse = x;
  sparse.stride[0] = 2;
  expect_refused(in_place, args_of({x, Tensor{}, sparse}, {5}, {0.0}), "y and x overlap");
}

}  // namespace
}  // namespace muster::kernels::test
