#include "api/base/collective/overlap.hpp"

#include "tests/kernels/math/values.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using math::test::Random;

alignas(64) std::byte g_memory[1 << 18];  // pointers into it are compared, never followed

constexpr muster_dtype kBySize[] = {MUSTER_U8, MUSTER_BF16, MUSTER_F32, MUSTER_F64};

Face random_face(Random& random, std::int64_t size_max, std::int64_t stride_max) {
  Face face;
  face.dtype = kBySize[random.below(std::size(kBySize))];
  face.dims = static_cast<std::int32_t>(random.below(5));
  for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
    face.size[d] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size_max) + 1));
    face.stride[d] = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(stride_max)));
  }
  face.data = g_memory + random.below(150);
  return face;
}

// A view of many dims and few elements: most sizes are 1 or 2.
Face random_deep_face(Random& random) {
  Face face;
  face.dtype = kBySize[random.below(std::size(kBySize))];
  face.dims = static_cast<std::int32_t>(4 + random.below(MUSTER_TENSOR_DIMS_MAX - 3));
  for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
    face.size[d] = static_cast<std::int64_t>(random.below(32) == 0 ? 0 : 1 + random.below(10) / 4);
    face.stride[d] = 1 + static_cast<std::int64_t>(random.below(std::uint64_t{1} << random.below(10)));
  }
  face.data = g_memory + random.below(600);
  return face;
}

// Every byte of a view, the slow way.
std::vector<std::size_t> bytes_in(const Face& face) {
  const std::size_t element_bytes = face.element_bytes();
  std::vector<std::size_t> bytes;
  for (std::uint64_t i = 0; i < face.count(); ++i) {
    std::uint64_t rest = i;
    auto at = static_cast<std::size_t>(face.data - g_memory);
    for (std::size_t d = static_cast<std::size_t>(face.dims); d-- > 0;) {
      const auto size = static_cast<std::uint64_t>(face.size[d]);
      at += rest % size * static_cast<std::size_t>(face.stride[d]) * element_bytes;
      rest /= size;
    }
    for (std::size_t b = 0; b < element_bytes; ++b) bytes.push_back(at + b);
  }
  return bytes;
}

// For pairs made by `draw`, the answer of overlap_of() must agree with a comparison of their sets of bytes.
template<class Draw>
void compare_with_sets_of_bytes(std::uint64_t last, Draw draw) {
  std::uint64_t met = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    Random random(seed);
    const Face a = draw(random);
    const Face b = draw(random);
    const std::vector<std::size_t> of_a = bytes_in(a);
    const std::set<std::size_t> in_a(of_a.begin(), of_a.end());
    bool meet = false;
    for (const std::size_t byte : bytes_in(b)) meet = meet || in_a.count(byte) != 0;
    met += meet ? 1 : 0;
    OverlapBudget budget;
    ASSERT_EQ(overlap_of(a, b, budget), meet ? BytesShared::kSome : BytesShared::kNone) << "seed " << seed;
  }
  EXPECT_GT(met, last / 10);
  EXPECT_LT(met, last - last / 10) << "both answers were asked for";
}

// Goal:   exact for views of any shape, also where an element lies half over another.
// Method: compare with the sets of their bytes.
TEST(Overlap, AgreesWithTheSetsOfBytes) {
  compare_with_sets_of_bytes(test::property_cases(20'000),
                             [](Random& random) { return random_face(random, 4, 12); });
}

TEST(Overlap, AgreesWithTheSetsOfBytesInUpToEightDims) {
  compare_with_sets_of_bytes(test::property_cases(20'000), random_deep_face);
}

// Goal:   a view that is called nested has no element twice.
TEST(Overlap, CallsNoViewNestedThatMeetsItself) {
  const std::uint64_t last = test::property_cases(20'000);
  std::uint64_t nested = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    Random random(seed);
    Face face = seed % 2 == 0 ? random_face(random, 4, 20) : random_deep_face(random);
    face.dtype = MUSTER_U8;
    if (!is_nested(face)) continue;
    ++nested;
    const std::vector<std::size_t> bytes = bytes_in(face);
    ASSERT_EQ(std::set<std::size_t>(bytes.begin(), bytes.end()).size(), bytes.size()) << "seed " << seed;
  }
  EXPECT_GT(nested, last / 10);
}

TEST(Overlap, CallsRowsColumnsAndTransposesNested) {
  Face face;
  face.dims = 3;
  face.size = {4, 5, 6};
  face.stride = {30, 6, 1};
  EXPECT_TRUE(is_nested(face));
  face.stride = {1, 4, 20};
  EXPECT_TRUE(is_nested(face));
  face.stride = {100, 7, 1};
  EXPECT_TRUE(is_nested(face)) << "gaps do no harm";
  face.stride = {1, 3, 20};
  EXPECT_FALSE(is_nested(face));
  face.size = {1, 5, 6};
  EXPECT_TRUE(is_nested(face)) << "the stride of one element is not looked at";
}

// A block of an array, and its view there. `stride` is the array's.
struct Cell {
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> first{};
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size{};
};
Face view_of(const Cell& cell, const std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX>& stride) {
  Face face;
  face.dtype = MUSTER_F32;
  face.dims = MUSTER_TENSOR_DIMS_MAX;
  face.size = cell.size;
  face.stride = stride;
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < stride.size(); ++d) offset += cell.first[d] * stride[d];
  face.data = g_memory + offset * 4;
  return face;
}

// Goal:   as many faces as one exchange may have, all of one array of 8 dims, are told apart within the
//         budget of one call.
// Method: an array of 4 x ... x 4 elements with dims in any order is cut at random into 680 blocks. All pairs
//         are compared; then one block is made larger, and its neighbour is found.
TEST(Overlap, TellsTheBlocksOfAnArrayOfEightDimsApartWithinItsBudget) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Random random(seed);
    std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> stride{};
    std::int64_t step = 1;
    for (std::size_t left = stride.size(); left > 0; --left) {
      std::size_t d = random.below(stride.size());
      while (stride[d] != 0) d = (d + 1) % stride.size();
      stride[d] = step;
      step *= 4;
    }
    std::vector<Cell> cells(1);
    cells[0].size.fill(4);
    while (cells.size() < 680) {
      const std::size_t i = random.below(cells.size());
      const std::size_t d = random.below(stride.size());
      if (cells[i].size[d] < 2) continue;
      const auto cut = static_cast<std::int64_t>(1 + random.below(cells[i].size[d] - 1));
      Cell rest = cells[i];
      rest.first[d] += cut;
      rest.size[d] -= cut;
      cells[i].size[d] = cut;
      cells.push_back(rest);
    }
    OverlapBudget budget;
    for (std::size_t i = 0; i < cells.size(); ++i)
      for (std::size_t j = i + 1; j < cells.size(); ++j)
        ASSERT_EQ(overlap_of(view_of(cells[i], stride), view_of(cells[j], stride), budget),
                  BytesShared::kNone)
            << "seed " << seed << ": blocks " << i << " and " << j;
    EXPECT_GT(budget.steps, OverlapBudget().steps / 2) << "seed " << seed;
    Cell larger = cells.back();
    const auto d = static_cast<std::size_t>(
        std::find_if(larger.first.begin(), larger.first.end(), [](std::int64_t at) { return at > 0; }) -
        larger.first.begin());
    --larger.first[d];
    ++larger.size[d];
    int found = 0;
    for (std::size_t i = 0; i + 1 < cells.size(); ++i)
      found += overlap_of(view_of(cells[i], stride), view_of(larger, stride), budget) == BytesShared::kSome;
    EXPECT_GE(found, 1) << "seed " << seed;
  }
}

// Goal:   views made to be hard cost what the budget says, and no more.
TEST(Overlap, GivesUpWhenTheBudgetIsSpent) {
  Face a;
  a.dtype = MUSTER_U8;
  a.dims = 4;
  a.size = {1 << 15, 1 << 15, 1 << 15, 1 << 15};
  a.stride = {1000003 * 2, 1000033 * 2, 1000037 * 2, 1000039 * 2};
  a.data = g_memory;
  Face b = a;
  b.stride = {1000081 * 2, 1000099 * 2, 1000117 * 2, 1000121 * 2};
  b.data = g_memory + 1;  // even sums never meet odd ones, but who would know
  OverlapBudget budget{100'000};
  EXPECT_EQ(overlap_of(a, b, budget), BytesShared::kUnknown);
  EXPECT_EQ(budget.steps, 0u);
}

}  // namespace
}  // namespace muster
