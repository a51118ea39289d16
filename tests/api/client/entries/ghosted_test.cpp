// Arrays with ghosts: the views, and a halo exchange of them on a grid of ranks.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using ::testing::HasSubstr;

muster_ghosted grid(std::int64_t rows, std::int64_t columns, std::int64_t width) {
  muster_ghosted g = MUSTER_GHOSTED_INIT;
  g.dtype = MUSTER_F32;
  g.dims = 2;
  g.own[0] = rows;
  g.own[1] = columns;
  for (int d = 0; d < 2; ++d) g.before[d] = g.after[d] = width;
  return g;
}

// An array of 8 dims with one ghost on each side of each.
muster_ghosted deep(std::int64_t rows) {
  muster_ghosted g = MUSTER_GHOSTED_INIT;
  g.dtype = MUSTER_F32;
  g.dims = MUSTER_TENSOR_DIMS_MAX;
  std::fill_n(g.own, g.dims, rows);
  std::fill_n(g.before, g.dims, 1);
  std::fill_n(g.after, g.dims, 1);
  return g;
}

muster_tensor view(const muster_ghosted& g, muster_buffer buffer, int part, int dim, std::int64_t rows,
                   std::uint32_t with_ghosts) {
  muster_tensor t{};
  EXPECT_EQ(muster_ghosted_view(&g, {buffer, 0}, part, dim, rows, with_ghosts, &t), MUSTER_OK)
      << muster_last_error();
  return t;
}

TEST(Ghosted, ViewsBeginWhereTheirRowsDo) {
  const muster_ghosted g = grid(3, 5, 1);  // 5 x 7 in memory
  std::uint64_t bytes = 0;
  ASSERT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_OK);
  EXPECT_EQ(bytes, 35u * 4);
  const auto expect = [&](int part, int dim, std::int64_t rows, std::uint32_t with, std::int64_t first,
                          std::int64_t size0, std::int64_t size1) {
    const muster_tensor t = view(g, 9, part, dim, rows, with);
    EXPECT_EQ(t.offset_bytes, static_cast<std::uint64_t>(first) * 4) << "part " << part << " dim " << dim;
    EXPECT_EQ(t.size[0], size0);
    EXPECT_EQ(t.size[1], size1);
    EXPECT_EQ(t.stride[0], 7);
    EXPECT_EQ(t.stride[1], 1);
    EXPECT_EQ(t.buffer, 9u);
  };
  expect(MUSTER_GHOSTED_OWN, 0, 0, 0, 8, 3, 5);
  expect(MUSTER_GHOSTED_OWN, 0, 0, 3, 0, 5, 7);
  expect(MUSTER_GHOSTED_BEFORE, 0, 1, 0, 1, 1, 5);
  expect(MUSTER_GHOSTED_AFTER, 0, 1, 2, 28, 1, 7);
  expect(MUSTER_GHOSTED_FIRST, 1, 1, 0, 8, 3, 1);
  expect(MUSTER_GHOSTED_LAST, 1, 2, 1, 4, 5, 2);
  expect(MUSTER_GHOSTED_AFTER, 1, 0, 0, 13, 3, 0);
}

TEST(Ghosted, RefusesWhatCannotBe) {
  muster_ghosted g = grid(3, 5, 1);
  muster_tensor t{};
  const muster_range start{1, 0};
  EXPECT_EQ(muster_ghosted_view(&g, start, MUSTER_GHOSTED_BEFORE, 0, 2, 0, &t), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("rows 2 of dim 0 are not in 0..1"));
  EXPECT_EQ(muster_ghosted_view(&g, start, MUSTER_GHOSTED_BEFORE, 2, 1, 0, &t), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_ghosted_view(&g, start, 5, 0, 1, 0, &t), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_ghosted_view(&g, start, MUSTER_GHOSTED_OWN, 0, 1, 4, &t), MUSTER_ERR_BAD_ARGUMENT);
  std::uint64_t bytes = 0;
  g.own[1] = -1;
  EXPECT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_ERR_BAD_ARGUMENT);
  g.own[1] = std::int64_t{1} << 40;
  g.own[0] = std::int64_t{1} << 40;
  EXPECT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("more than 2^48 elements"));
  for (const std::int32_t dims : {0, 9, -1}) {
    g.dims = dims;
    EXPECT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_ERR_BAD_ARGUMENT) << dims;
    EXPECT_THAT(muster_last_error(), HasSubstr(std::to_string(dims) + " dims; 1 to 8 are possible"));
  }
  g = deep(2);
  EXPECT_EQ(muster_ghosted_view(&g, start, MUSTER_GHOSTED_OWN, 0, 1, 256, &t), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("with_ghosts 0x100 names dims beyond the 8"));
  EXPECT_EQ(muster_ghosted_view(&g, start, MUSTER_GHOSTED_LAST, 7, 2, 255, &t), MUSTER_OK);
}

TEST(Ghosted, ViewsOfEightDimsBeginWhereTheirRowsDo) {
  const muster_ghosted g = deep(2);  // 4 rows in each dim
  std::uint64_t bytes = 0;
  ASSERT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_OK);
  EXPECT_EQ(bytes, 65536u * 4);
  const muster_tensor own = view(g, 9, MUSTER_GHOSTED_OWN, 0, 0, 0);
  EXPECT_EQ(own.offset_bytes, 21845u * 4) << "1 + 4 + 16 + ... + 4^7";
  const muster_tensor last = view(g, 9, MUSTER_GHOSTED_AFTER, 0, 1, 0xfe);
  EXPECT_EQ(last.offset_bytes, 3u * 16384 * 4);
  std::int64_t stride = 16384;
  for (int d = 0; d < 8; ++d, stride /= 4) {
    EXPECT_EQ(own.size[d], 2) << d;
    EXPECT_EQ(own.stride[d], stride) << d;
    EXPECT_EQ(last.size[d], d == 0 ? 1 : 4) << d;
  }
}

class GhostedGrid : public muster::test::RunningRanks {};

// Goal:   dim after dim, each with the ghosts of the one before, fills all ghosts of a periodic 2 x 2 grid,
//         corners too.
// Method: every element is its global position; afterwards every ghost must be the one of its neighbour.
TEST_F(GhostedGrid, FillsAllGhostsCornersToo) {
  constexpr std::int64_t kRows = 3, kColumns = 4, kWidth = 2;
  with_ranks(4, [&](Member& member) {
    const muster_ghosted g = grid(kRows, kColumns, kWidth);
    std::uint64_t bytes = 0;
    ASSERT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_OK);
    const auto array = vector_of(member, bytes / sizeof(float));
    const std::int64_t at[2] = {member.rank / 2, member.rank % 2};
    const auto global = [&](std::int64_t row, std::int64_t column) {
      const std::int64_t r = (at[0] * kRows + row + 2 * kRows) % (2 * kRows);
      const std::int64_t c = (at[1] * kColumns + column + 2 * kColumns) % (2 * kColumns);
      return static_cast<float>(r * 100 + c);
    };
    const std::int64_t stride = kColumns + 2 * kWidth;
    const auto element = [&](std::int64_t row, std::int64_t column) -> float& {
      return array.data[(row + kWidth) * stride + column + kWidth];
    };
    std::fill_n(array.data, bytes / sizeof(float), -1.0f);
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c) element(r, c) = global(r, c);
    for (int dim = 0; dim < 2; ++dim) {
      const std::uint32_t with = dim == 0 ? 0 : 1;
      const int neighbour = dim == 0 ? (member.rank + 2) % 4 : member.rank / 2 * 2 + (1 - member.rank % 2);
      // In a period of two, both neighbours are one rank: tags tell the two faces apart.
      const muster_face sends[2] = {
          {neighbour, 0, view(g, array.buffer, MUSTER_GHOSTED_FIRST, dim, kWidth, with)},
          {neighbour, 1, view(g, array.buffer, MUSTER_GHOSTED_LAST, dim, kWidth, with)}};
      const muster_face receives[2] = {
          {neighbour, 0, view(g, array.buffer, MUSTER_GHOSTED_AFTER, dim, kWidth, with)},
          {neighbour, 1, view(g, array.buffer, MUSTER_GHOSTED_BEFORE, dim, kWidth, with)}};
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = MUSTER_EXCHANGE;
      c.group = member.group;
      c.dtype = MUSTER_F32;
      c.sends = sends;
      c.receives = receives;
      c.send_count = c.receive_count = 2;
      ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    }
    for (std::int64_t r = -kWidth; r < kRows + kWidth; ++r)
      for (std::int64_t c = -kWidth; c < kColumns + kWidth; ++c)
        ASSERT_EQ(element(r, c), global(r, c)) << "rank " << member.rank << " at " << r << ", " << c;
  });
}

// Goal:   the same of an array of 8 dims: each dim's faces carry the ghosts of the dims before it, to the
//         last corner.
// Method: a periodic grid that is 2 ranks long in two dims and 1 in the rest, where a rank is its own
//         neighbour.
TEST_F(GhostedGrid, FillsAllGhostsOfEightDims) {
  constexpr int kDims = MUSTER_TENSOR_DIMS_MAX;
  constexpr std::int64_t kRows = 2, kAll = kRows + 2;
  constexpr int kSplit[2] = {2, 5};
  with_ranks(4, [&](Member& member) {
    const muster_ghosted g = deep(kRows);
    std::uint64_t bytes = 0;
    ASSERT_EQ(muster_ghosted_bytes(&g, &bytes), MUSTER_OK);
    const auto array = vector_of(member, bytes / sizeof(float));
    const int at[2] = {member.rank / 2, member.rank % 2};
    // The global position of an element of the array as one number, and whether the rank owns it.
    const auto global = [&](std::size_t element, bool* own) {
      std::int64_t position = 0, weight = 1;
      *own = true;
      for (int d = kDims - 1; d >= 0; --d, element /= kAll) {
        const std::int64_t row = static_cast<std::int64_t>(element % kAll) - 1;
        const bool split = d == kSplit[0] || d == kSplit[1];
        const std::int64_t length = split ? 2 * kRows : kRows;
        const std::int64_t first = split ? at[d == kSplit[1]] * kRows : 0;
        *own = *own && row >= 0 && row < kRows;
        position += (first + row + length) % length * weight;
        weight *= length;
      }
      return static_cast<float>(position);
    };
    bool own = false;
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
      const float value = global(i, &own);
      array.data[i] = own ? value : -1.0f;
    }
    for (int dim = 0; dim < kDims; ++dim) {
      const std::uint32_t with = (1u << dim) - 1;
      const int neighbour = dim == kSplit[0]   ? (member.rank + 2) % 4
                            : dim == kSplit[1] ? member.rank / 2 * 2 + (1 - member.rank % 2)
                                               : member.rank;
      const muster_face sends[2] = {{neighbour, 0, view(g, array.buffer, MUSTER_GHOSTED_FIRST, dim, 1, with)},
                                    {neighbour, 1, view(g, array.buffer, MUSTER_GHOSTED_LAST, dim, 1, with)}};
      const muster_face receives[2] = {
          {neighbour, 0, view(g, array.buffer, MUSTER_GHOSTED_AFTER, dim, 1, with)},
          {neighbour, 1, view(g, array.buffer, MUSTER_GHOSTED_BEFORE, dim, 1, with)}};
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = MUSTER_EXCHANGE;
      c.group = member.group;
      c.sends = sends;
      c.receives = receives;
      c.send_count = c.receive_count = 2;
      ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    }
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i)
      ASSERT_EQ(array.data[i], global(i, &own)) << "rank " << member.rank << ", element " << i;
  });
}

}  // namespace
