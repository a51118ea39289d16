#include "api/client/check/memory_use.hpp"

#include "api/base/dtype.hpp"

#include <array>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Bytes = std::pair<std::ptrdiff_t, std::ptrdiff_t>;

std::array<std::byte, 1 << 16> memory;

std::byte* address_of(const muster_range& range) {
  return range.buffer == 1 ? memory.data() + range.offset_bytes : nullptr;
}

std::vector<Bytes> bytes_of(const MemoryUses& uses, bool writes) {
  std::vector<Bytes> all;
  for (const MemoryUse& use : uses)
    if (use.writes == writes) all.emplace_back(use.from - memory.data(), use.to - memory.data());
  return all;
}

std::vector<Bytes> runs_of(const MemoryUse& use, std::size_t least_bytes) {
  std::vector<Bytes> all;
  for_each_run(use, least_bytes, [&](const std::byte* from, const std::byte* to) {
    all.emplace_back(from - memory.data(), to - memory.data());
  });
  return all;
}

muster_tensor columns(std::uint64_t first, std::int64_t rows, std::int64_t count, std::int64_t stride) {
  muster_tensor view = muster_view2(1, first * 4, MUSTER_F32, rows, count);
  view.stride[0] = stride;
  return view;
}

TEST(MemoryUse, OfAKernelIsThatOfItsOperands) {
  const MemoryUses uses = uses_of(
      muster_copy(muster_view1(1, 0, MUSTER_F32, 4), muster_view1(1, 64, MUSTER_BF16, 4)), address_of);
  EXPECT_THAT(bytes_of(uses, false), ElementsAre(Bytes{0, 16}));
  EXPECT_THAT(bytes_of(uses, true), ElementsAre(Bytes{64, 72}));
  EXPECT_THAT(uses_of(muster_fill(muster_view1(2, 0, MUSTER_F32, 4), 0), address_of), IsEmpty())
      << "memory that this process does not see";
  EXPECT_THAT(uses_of(muster_fill(muster_view1(1, 0, MUSTER_F32, 0), 0), address_of), IsEmpty());
  EXPECT_THAT(uses_of(muster_kernel_of(999), address_of), IsEmpty());
}

// Goal:   columns of one matrix do not meet, though their addresses interleave.
TEST(MemoryUse, MeetsWhereBytesAreShared) {
  const auto of = [](const muster_tensor& view) { return uses_of(muster_fill(view, 0), address_of).front(); };
  EXPECT_FALSE(meet(of(columns(0, 4, 3, 8)), of(columns(3, 4, 5, 8))));
  EXPECT_TRUE(meet(of(columns(0, 4, 4, 8)), of(columns(3, 4, 5, 8))));
  EXPECT_TRUE(meet(of(columns(0, 4, 4, 8)), of(muster_view1(1, 32, MUSTER_F32, 1))));
  EXPECT_FALSE(meet(of(columns(0, 4, 4, 8)), of(muster_view1(1, 16, MUSTER_F32, 4))));
  EXPECT_FALSE(meet(of(columns(0, 4, 4, 8)), of(muster_view1(1, 112, MUSTER_F32, 4))));
}

TEST(MemoryUse, HasARunForEachRow) {
  const auto of = [](const muster_tensor& view) { return uses_of(muster_fill(view, 0), address_of).front(); };
  EXPECT_THAT(runs_of(of(columns(1, 2, 4, 8)), 16), ElementsAre(Bytes{4, 20}, Bytes{36, 52}));
  EXPECT_THAT(runs_of(of(columns(1, 2, 4, 8)), 17), IsEmpty());
  EXPECT_THAT(runs_of(of(columns(0, 2, 8, 8)), 4096), ElementsAre(Bytes{0, 64})) << "it has no gaps";
}

MemoryUses collective(muster_op op, Share mine, const Share::Bases& at) {
  Collective what;
  what.op = op;
  what.dtype = MUSTER_F32;
  return uses_of(what, mine, at);
}

TEST(MemoryUse, OfACollectiveIsThatOfItsBlocks) {
  Share mine;
  mine.source_blocks = {{0, 4}};
  mine.target_blocks = {{0, 4}, {4, 4}, {12, 4}, {9, 0}};
  const MemoryUses uses = collective(MUSTER_ALL_GATHER, mine, {memory.data(), memory.data() + 256});
  EXPECT_THAT(bytes_of(uses, false), ElementsAre(Bytes{0, 16}));
  EXPECT_THAT(bytes_of(uses, true), ElementsAre(Bytes{256, 288}, Bytes{304, 320})) << "neighbours are one";
}

TEST(MemoryUse, LeavesTheOwnBlockOfAGatherInPlaceAlone) {
  Share mine;
  mine.source_blocks = {{0, 4}};
  mine.target_blocks = {{0, 4}, {4, 4}, {8, 4}};
  const MemoryUses uses = collective(MUSTER_ALL_GATHER, mine, {memory.data() + 16, memory.data()});
  EXPECT_THAT(bytes_of(uses, false), ElementsAre(Bytes{16, 32}));
  EXPECT_THAT(bytes_of(uses, true), ElementsAre(Bytes{0, 16}, Bytes{32, 48}));
  Share sum;
  sum.source_blocks = sum.target_blocks = {{0, 4}};
  EXPECT_THAT(bytes_of(collective(MUSTER_ALL_REDUCE, sum, {memory.data(), memory.data()}), true),
              ElementsAre(Bytes{0, 16}));
  EXPECT_THAT(bytes_of(collective(MUSTER_ALL_TO_ALL, sum, {memory.data(), memory.data()}), true),
              ElementsAre(Bytes{0, 16}));
}

}  // namespace
}  // namespace muster::client
