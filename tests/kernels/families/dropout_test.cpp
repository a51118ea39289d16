#include "kernels/dropout/dropout.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/dropout.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"

#include <muster/kernels.h>

#include <cmath>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::initializer_list<muster_dtype> kDtypes{MUSTER_F32, MUSTER_BF16};

const Kernel& forward() {
  return row_of(dropout::rows(), MUSTER_KERNEL_DROPOUT_FORWARD);
}
const Kernel& backward() {
  return row_of(dropout::rows(), MUSTER_KERNEL_DROPOUT_BACKWARD);
}

Args dropout_args(Tensor x, Tensor y, double p, std::uint64_t seed, std::int64_t offset) {
  return args_of({x, y}, {static_cast<std::int64_t>(seed), offset}, {p});
}

std::size_t count(const Shape& shape) {
  std::size_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::size_t>(size);
  return n;
}

// The elements [begin, end) of a vector.
Tensor piece(Tensor t, std::int64_t begin, std::int64_t end, std::int64_t bytes) {
  t.data += begin * bytes;
  t.size[0] = end - begin;
  return t;
}

std::int64_t bytes_of(muster_dtype dtype) {
  return dtype == MUSTER_F32 ? 4 : 2;
}

// Goal:   the generator is the published one.
// Method: the vectors of Random123 1.14, tests/kat_vectors, lines "philox4x32 10".
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(dropout::philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(dropout::philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(dropout::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Goal: both halves of the seed and of the block's number stand where kernels.h says.
TEST(DropoutTwin, DrawsTheWordsOfTheGenerator) {
  Random random(901);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t seed = random.next();
    const std::uint64_t index = random.next() >> random.integer(1, 63);
    const std::uint64_t block = index / 4;
    const auto words =
        dropout::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    ASSERT_EQ(twin::dropout_word(seed, index), words[index % 4]) << "seed " << seed << " index " << index;
  }
}

TEST(DropoutTwin, BackwardIsTheSlopeOfForward) {
  Random random(902);
  const Values x = random.uniforms(60);
  const Values dy = random.uniforms(60);
  const auto loss = [&](const Values& v) { return twin::dot(twin::dropout(v, 0.3, 5, 77), dy); };
  expect_close(twin::dropout(dy, 0.3, 5, 77), twin::finite_difference(loss, x), {1e-9, 1e-9});
}

// Scalars, odd sizes, empty ones, chunks that end inside a row, and several parts.
const Shape kShapes[] = {{},        {1},       {1023},    {1030},       {0},        {3, 5},
                         {7, 1031}, {4, 0, 2}, {3, 5, 7}, {2, 3, 5, 9}, {300, 257}, {100'003}};
// Ends of the range, a chance whose threshold is 1, and one above each word.
constexpr double kChances[] = {0.0, 0.1, 0.5, 0.9, 0x1p-33, 1.0 - 0x1p-40};
// A block's first, second and last word; the last block whose number has 32 bits; far behind.
constexpr std::int64_t kOffsets[] = {0, 1, 7, (std::int64_t{1} << 34) - 6, (std::int64_t{1} << 62) + 2};

TEST(Dropout, MatchesTheTwinForEveryShapeLayoutAndDtype) {
  Random random(903);
  for (const Kernel* kernel : {&forward(), &backward()})
    for (const Shape& shape : kShapes)
      for (const muster_dtype dtype : kDtypes)
        for (const Layout layout : kLayouts) {
          const double p = kChances[random.integer(0, std::ssize(kChances) - 1)];
          const std::int64_t offset = kOffsets[random.integer(0, std::ssize(kOffsets) - 1)];
          const std::uint64_t seed = random.next();
          SCOPED_TRACE(testing::Message()
                       << kernel->name << " " << testing::PrintToString(shape) << " " << layout_name(layout)
                       << " dtype " << dtype << " p " << p << " seed " << seed << " offset " << offset);
          OwnedTensor x(dtype, shape, layout, random.uniforms(count(shape)));
          OwnedTensor y(dtype, shape, Layout::kPaddedRows);
          run_in_any_order(*kernel, dropout_args(x.view(), y.view(), p, seed, offset), {&y});
          // The factor and the product are rounded to f32, then the result to the dtype.
          const double rounding = 2.01 * half_ulp(MUSTER_F32) + (dtype == MUSTER_F32 ? 0.0 : half_ulp(dtype));
          expect_close(y.values(), twin::dropout(x.values(), p, seed, static_cast<std::uint64_t>(offset)),
                       {0.0, rounding});
        }
}

TEST(Dropout, DropsByEachChanceAndOffset) {
  Random random(904);
  OwnedTensor x(MUSTER_F32, {5000}, Layout::kDense, random.uniforms(5000));
  for (const double p : kChances)
    for (const std::int64_t offset : kOffsets) {
      SCOPED_TRACE(testing::Message() << "p " << p << " offset " << offset);
      OwnedTensor y(MUSTER_F32, {5000});
      run(forward(), dropout_args(x.view(), y.view(), p, 12, offset));
      expect_close(y.values(), twin::dropout(x.values(), p, 12, static_cast<std::uint64_t>(offset)),
                   {0.0, 2.01 * half_ulp(MUSTER_F32)});
    }
}

// Goal:   an element is kept from the threshold on, which is p · 2^32 rounded, halves up.
// Method: chances around the word of one element.
TEST(Dropout, KeepsAWordThatEqualsTheThreshold) {
  constexpr std::uint64_t kSeed = 10;
  const double word = twin::dropout_word(kSeed, 5);
  for (const auto& [above, kept] : {std::pair{-1.0, true}, std::pair{0.0, true}, std::pair{0.25, true},
                                    std::pair{0.5, false}, std::pair{0.75, false}, std::pair{1.0, false}}) {
    OwnedTensor x(MUSTER_F32, {1}, Layout::kDense, {1.0});
    OwnedTensor y(MUSTER_F32, {1});
    run(forward(), dropout_args(x.view(), y.view(), std::ldexp(word + above, -32), kSeed, 5));
    EXPECT_EQ(y.values()[0] != 0.0, kept) << "p is the word plus " << above << ", by 2^32";
  }
}

// Goal: the factor and the product are floats, and the result is rounded to the dtype once.
TEST(Dropout, ScalesInFloatToTheBit) {
  Random random(905);
  constexpr double kChance = 0.3;
  const float factor = static_cast<float>(1.0 / (1.0 - kChance));
  for (const muster_dtype dtype : kDtypes) {
    OwnedTensor x(dtype, {10'000}, Layout::kDense, random.uniforms(10'000));
    OwnedTensor y(dtype, {10'000});
    run(forward(), dropout_args(x.view(), y.view(), kChance, 1, 0));
    Values expected = x.values();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const bool kept = twin::dropout_word(1, i) >= 1'288'490'189u;  // 0.3 · 2^32 is 1288490188.8
      expected[i] = kept ? static_cast<double>(static_cast<float>(expected[i]) * factor) : 0.0;
    }
    EXPECT_EQ(y.values(), rounded(dtype, expected));
  }
}

TEST(Dropout, WorksInPlace) {
  Random random(906);
  const Shape shape{40, 1100};
  for (const Kernel* kernel : {&forward(), &backward()})
    for (const muster_dtype dtype : kDtypes)
      for (const Layout layout : kLayouts) {
        OwnedTensor x(dtype, shape, layout, random.uniforms(count(shape)));
        OwnedTensor apart(dtype, shape);
        run(*kernel, dropout_args(x.view(), apart.view(), 0.2, 3, 9));
        run_in_any_order(*kernel, dropout_args(x.view(), x.view(), 0.2, 3, 9), {&x});
        EXPECT_EQ(x.values(), apart.values());
      }
}

// Goal:   shards drop what the whole drops, bit by bit, wherever they are cut.
// Method: cuts inside a block, at a chunk, at a part, and where the block's number grows a second word.
TEST(Dropout, GivesAnElementTheSameBitsInAnyShard) {
  Random random(907);
  constexpr std::int64_t kCount = 70'000;
  constexpr std::int64_t kOffset = (std::int64_t{1} << 34) - 40'001;
  for (const Kernel* kernel : {&forward(), &backward()})
    for (const muster_dtype dtype : kDtypes) {
      OwnedTensor x(dtype, {kCount}, Layout::kDense, random.uniforms(kCount, 1.0, 2.0));
      OwnedTensor whole(dtype, {kCount});
      OwnedTensor sharded(dtype, {kCount});
      run(*kernel, dropout_args(x.view(), whole.view(), 0.5, 99, kOffset));
      std::int64_t begin = 0;
      for (const std::int64_t end : {1, 3, 3, 8, 1024, 1030, 32'768, 40'000, 40'001, 40'003, 70'000}) {
        const auto at = [&](OwnedTensor& t) { return piece(t.view(), begin, end, bytes_of(dtype)); };
        run(*kernel, dropout_args(at(x), at(sharded), 0.5, 99, kOffset + begin));
        begin = end;
      }
      EXPECT_EQ(sharded.bytes(), whole.bytes());
    }
}

// Goal: a shard of columns is dropped as the whole is, with one launch a row, as the README says.
TEST(Dropout, GivesColumnsTheBitsOfTheWholeRowByRow) {
  Random random(908);
  constexpr std::int64_t kRows = 6;
  constexpr std::int64_t kColumns = 43;
  OwnedTensor x(MUSTER_F32, {kRows, kColumns}, Layout::kDense, random.uniforms(kRows * kColumns));
  OwnedTensor whole(MUSTER_F32, {kRows, kColumns});
  OwnedTensor sharded(MUSTER_F32, {kRows, kColumns});
  run(forward(), dropout_args(x.view(), whole.view(), 0.5, 4, 0));
  for (const auto& [begin, end] : {std::pair{0, 17}, std::pair{17, 43}})
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto at = [&, begin = begin, end = end](OwnedTensor& t) {
        Tensor view = t.view();
        view.data += (row * kColumns + begin) * 4;
        view.size = {1, end - begin};
        return view;
      };
      run(forward(), dropout_args(at(x), at(sharded), 0.5, 4, row * kColumns + begin));
    }
  EXPECT_EQ(sharded.bytes(), whole.bytes());
}

// Goal: the gradient passes where the value passed, and nowhere else.
TEST(Dropout, BackwardKeepsWhatForwardKept) {
  constexpr std::int64_t kCount = 20'000;
  OwnedTensor x(MUSTER_F32, {kCount}, Layout::kDense, Values(kCount, 1.0));
  OwnedTensor dy(MUSTER_BF16, {kCount}, Layout::kDense, Values(kCount, 4.0));
  OwnedTensor y(MUSTER_F32, {kCount});
  OwnedTensor dx(MUSTER_BF16, {kCount});
  run(forward(), dropout_args(x.view(), y.view(), 0.75, 8, 3));
  run(backward(), dropout_args(dy.view(), dx.view(), 0.75, 8, 3));
  Values expected = y.values();
  for (double& value : expected) value *= 4.0;
  EXPECT_EQ(dx.values(), expected);
}

// Goal: the share of kept elements is 1 - p, within five standard deviations of its count.
TEST(Dropout, KeepsTheShareThatItSays) {
  constexpr std::int64_t kCount = 1 << 20;
  OwnedTensor x(MUSTER_F32, {kCount}, Layout::kDense, Values(kCount, 1.0));
  OwnedTensor y(MUSTER_F32, {kCount});
  for (const double p : {0.001, 0.1, 0.5, 0.9}) {
    run(forward(), dropout_args(x.view(), y.view(), p, 20'240'501, 0));
    double kept = 0.0;
    double sum = 0.0;
    for (const double value : y.values()) {
      kept += value != 0.0 ? 1.0 : 0.0;
      sum += value;
    }
    const double sigma = std::sqrt(kCount * p * (1.0 - p));
    EXPECT_NEAR(kept, kCount * (1.0 - p), 5.0 * sigma) << "p " << p;
    EXPECT_NEAR(sum, kCount, 5.0 * sigma / (1.0 - p) + kCount * 1e-7) << "p " << p;
  }
}

TEST(Dropout, AnotherSeedDropsOtherElements) {
  constexpr std::int64_t kCount = 10'000;
  OwnedTensor x(MUSTER_F32, {kCount}, Layout::kDense, Values(kCount, 1.0));
  OwnedTensor first(MUSTER_F32, {kCount});
  run(forward(), dropout_args(x.view(), first.view(), 0.5, 1, 0));
  const Values of_first = first.values();
  for (const std::uint64_t seed : {std::uint64_t{2}, (std::uint64_t{1} << 63) + 1}) {
    OwnedTensor other(MUSTER_F32, {kCount});
    run(forward(), dropout_args(x.view(), other.view(), 0.5, seed, 0));
    const Values of_other = other.values();
    double differing = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) differing += of_first[i] != of_other[i] ? 1.0 : 0.0;
    EXPECT_NEAR(differing, kCount * 0.5, 5.0 * std::sqrt(kCount * 0.25)) << "seed " << seed;
  }
}

TEST(Dropout, WithChanceZeroIsTheIdentityToTheBit) {
  Random random(909);
  Values values = random.uniforms(5000, -1e30, 1e30);
  values[0] = -0.0;
  values[1] = kInfinity;
  for (const Kernel* kernel : {&forward(), &backward()})
    for (const muster_dtype dtype : kDtypes) {
      OwnedTensor x(dtype, {5000}, Layout::kDense, values);
      OwnedTensor y(dtype, {5000});
      run(*kernel, dropout_args(x.view(), y.view(), 0.0, random.next(), 0));
      EXPECT_EQ(y.bytes(), x.bytes());
    }
}

// Goal: a dropped element is zero, also where a product with zero would not be.
TEST(Dropout, DropsWhatIsNotFinite) {
  for (const double value : {kInfinity, -kInfinity, kNan})
    for (const double p : {0.5, 1.0 - 0x1p-40}) {
      OwnedTensor x(MUSTER_BF16, {3000}, Layout::kDense, Values(3000, value));
      OwnedTensor y(MUSTER_BF16, {3000});
      run(forward(), dropout_args(x.view(), y.view(), p, 6, 0));
      expect_close(y.values(), twin::dropout(x.values(), p, 6, 0), {});
    }
}

TEST(Dropout, RefusesOperandsThatDoNotFitAndSaysWhich) {
  OwnedTensor x(MUSTER_F32, {4, 6});
  OwnedTensor y(MUSTER_F32, {4, 6});
  OwnedTensor turned(MUSTER_F32, {6, 4});
  OwnedTensor half(MUSTER_F16, {4, 6});
  OwnedTensor brain(MUSTER_BF16, {4, 6});
  const auto refused = [&](Tensor from, Tensor to, double p, std::int64_t offset, const std::string& needle) {
    expect_refused(forward(), dropout_args(from, to, p, 0, offset), needle);
  };
  refused(x.view(), turned.view(), 0.1, 0, "y is [6, 4], but x is [4, 6]: their shapes must be equal");
  refused(x.view(), brain.view(), 0.1, 0, "y is bf16, but x is f32");
  refused(half.view(), half.view(), 0.1, 0, "x is f16; it must be one of f32, bf16");
  refused(x.view(), y.view(), -0.1, 0, "p is -0.1; it must be at least 0 and below 1");
  refused(x.view(), y.view(), 1.0, 0, "p is 1; it must be");
  refused(x.view(), y.view(), kInfinity, 0, "p is inf; it must be");
  refused(x.view(), y.view(), kNan, 0, "p is nan; it must be");
  refused(x.view(), y.view(), 0.1, -1, "offset is -1; it must lie in 0..9223372036854775783");
  refused(x.view(), y.view(), 0.1, std::numeric_limits<std::int64_t>::max() - 23,
          "offset is 92233720368547757");
  refused(x.view(), piece(x.view(), 1, 4, 24), 0.1, 0, "y is [3, 6], but x is [4, 6]");
  expect_refused(backward(), dropout_args(x.view(), turned.view(), 0.1, 0, 0), "dx is [6, 4], but dy is");
  expect_refused(backward(), dropout_args(x.view(), y.view(), 1.5, 0, 0), "p is 1.5");
  expect_refused(backward(), args_of({x.view()}, {}, {0.1}), "1 operands were given; it takes 2");
}

// Goal: in place means the same view; one that is shifted is refused.
TEST(Dropout, RefusesAnOutputThatOverlapsOtherwise) {
  OwnedTensor x(MUSTER_F32, {10});
  expect_refused(forward(), dropout_args(piece(x.view(), 0, 9, 4), piece(x.view(), 1, 10, 4), 0.1, 0, 0),
                 "overlap");
}

}  // namespace
}  // namespace muster::kernels::test
