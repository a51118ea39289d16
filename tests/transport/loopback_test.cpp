// The conformance suite on the loopback transport, and the same suite on its parts run by hand in a shuffled
// order.
#include "transport/loopback/loopback.hpp"

#include "tests/transport/host_bench.hpp"
#include "transport/loopback/parts.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

const BenchFactory kPool{"Pool", [] { return std::make_unique<HostBench>(loopback_factory()); }};
const BenchFactory kTwoDevices{"TwoDevices",
                               [] { return std::make_unique<HostBench>(loopback_factory(), 3'000, 2); }};
INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorConformance, ::testing::Values(kPool, kTwoDevices),
                         bench_name);
INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorRefusals, ::testing::Values(kPool), bench_name);

std::vector<loopback::Member> members_of(const std::vector<Share>& shares) {
  std::vector<loopback::Member> members;
  for (const Share& share : shares) members.push_back({&share, share.source, share.target, false});
  return members;
}

// Runs all parts of a case once, in the order that `seed` draws. There must be some.
std::vector<std::byte> run_shuffled(const Shape& shape, const Case& c, std::uint64_t seed,
                                    std::uint32_t parts_min) {
  std::vector<std::byte> arena = c.before;
  const std::vector<Share> shares = *shares_of(shape.collective, shape.ranks, c.members, arena.data());
  const std::vector<loopback::Member> members = members_of(shares);
  std::vector<std::uint64_t> starts(shares.size() + 1);
  const loopback::CollectiveRow job = loopback::cut(shape.collective, members, starts);
  EXPECT_GE(job.parts, parts_min) << shape.text();
  std::vector<std::uint32_t> order(job.parts);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const std::uint32_t part : order) loopback::execute_part(job, part);
  return arena;
}

// Goal:   parts may run in any order, in place too: no part reads what another has written.
TEST(LoopbackParts, GiveTheSameBitsInAnyOrder) {
  for (const muster_op op : kOps)
    for (const Place place : {Place::kApart, Place::kInPlace}) {
      if (op == MUSTER_BARRIER) continue;
      const muster_redop redop = has_reduction(op) ? MUSTER_SUM : 0;
      const Shape shape = shape_of(op, MUSTER_BF16, redop, 4, 300'003, place);
      const Case c = make_case(shape);
      for (std::uint64_t seed = 1; seed <= 2; ++seed)
        ASSERT_TRUE(run_shuffled(shape, c, seed, 4) == c.after) << shape.text() << ", order " << seed;
    }
}

bool has_faces_with(const Share& share, const Share& other) {
  const auto with = [&](const Face& face) { return face.peer == other.index; };
  return std::any_of(share.sends.begin(), share.sends.end(), with) ||
         std::any_of(share.receives.begin(), share.receives.end(), with);
}

// Inverts what the member sends.
void spoil(const Share& share) {
  for (const Face& face : share.sends) {
    std::vector<std::byte*> elements{face.data};
    for (std::int32_t d = 0; d < face.dims; ++d) {
      std::vector<std::byte*> next;
      for (std::byte* const element : elements)
        for (std::int64_t i = 0; i < face.size[d]; ++i)
          next.push_back(element + i * face.stride[d] * static_cast<std::int64_t>(face.element_bytes()));
      elements = std::move(next);
    }
    for (std::byte* const element : elements)
      for (std::size_t i = 0; i < face.element_bytes(); ++i) element[i] ^= std::byte{0xff};
  }
}

// Goal:   an EXCHANGE that moves member by member leaves what one for all leaves.
// Method: members come in a random order, each in a launch with some of those who have come before: all with
//         which it has faces, and perhaps others. Those have gone on: what they had sent is spoilt by then.
TEST(LoopbackParts, MoveTheFacesOfThoseWhoMeet) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::int32_t>(1 + random.below(7));
    const Shape shape = shape_of(MUSTER_EXCHANGE, MUSTER_U8, 0, ranks, random.below(3'000), Place::kApart);
    const Case c = make_case(shape);
    std::vector<std::byte> arena = c.before;
    const std::vector<Share> shares = *shares_of(shape.collective, ranks, c.members, arena.data());
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::vector<loopback::Member> members;
      for (std::size_t before = 0; before <= i; ++before) {
        const Share& share = shares[order[before]];
        const bool named = has_faces_with(share, shares[order[i]]);
        if (before == i || named || random.below(2) == 0)
          members.push_back({&share, share.source, share.target, before != i});
        if (before < i && !named) spoil(share);
      }
      std::sort(members.begin(), members.end(),
                [](const auto& a, const auto& b) { return a.share->index < b.share->index; });
      std::vector<std::uint64_t> starts(members.size() + 1);
      const loopback::CollectiveRow job = loopback::cut(shape.collective, members, starts);
      for (std::uint32_t part = 0; part < job.parts; ++part) loopback::execute_part(job, part);
      for (std::size_t before = 0; before < i; ++before)
        if (!has_faces_with(shares[order[before]], shares[order[i]])) spoil(shares[order[before]]);
    }
    ASSERT_TRUE(arena == c.after) << shape.text() << ", seed " << seed;
  }
}

// How many parts there are, without any memory.
std::uint32_t parts_of(const Collective& collective, std::int32_t ranks, const Share::Counts& counts = {}) {
  std::vector<Share> shares;
  for (std::int32_t i = 0; i < ranks; ++i) shares.push_back(*make_share(collective, i, ranks, counts));
  std::vector<std::uint64_t> starts(shares.size() + 1);
  return loopback::cut(collective, members_of(shares), starts).parts;
}

TEST(LoopbackParts, FollowFromTheArgumentsAlone) {
  Collective c;
  c.op = MUSTER_ALL_REDUCE;
  c.dtype = MUSTER_F32;
  c.redop = MUSTER_SUM;
  EXPECT_EQ(parts_of(c, 4), 0u) << "no elements, no parts";
  c.count = 1;
  EXPECT_EQ(parts_of(c, 4), 1u);
  c.count = loopback::kPartTrafficBytes / (8 * 4);  // four members read and written, four bytes each
  EXPECT_EQ(parts_of(c, 4), 1u);
  ++c.count;
  EXPECT_EQ(parts_of(c, 4), 2u);
  c.count = 1024 * 64;
  EXPECT_EQ(parts_of(c, 1024), 64u) << "a part has at least a page of each vector";
  c.count = std::uint64_t{1} << 60;
  EXPECT_GT(parts_of(c, 64), 1u << 30) << "part numbers fit in 32 bits";
  c.count = loopback::kPartTrafficBytes / (5 * 4) / 16 * 16;  // four read and one written, in whole lines
  c.op = MUSTER_REDUCE;
  EXPECT_EQ(parts_of(c, 4), 1u);
  ++c.count;
  EXPECT_EQ(parts_of(c, 4), 2u);
  c.op = MUSTER_BARRIER;
  EXPECT_EQ(parts_of(c, 4), 0u);
}

// Goal:   many blocks of few bytes are work too, and are cut.
TEST(LoopbackParts, CutManySmallBlocks) {
  Collective c;
  c.op = MUSTER_ALL_TO_ALL;
  c.dtype = MUSTER_U8;
  EXPECT_EQ(parts_of(c, 64, {.count = 0}), 0u);
  EXPECT_EQ(parts_of(c, 16, {.count = 1}), 1u);
  EXPECT_EQ(parts_of(c, 64, {.count = 1}), 3u) << "4096 blocks that count for 65 bytes each, of 128 KiB";
}

}  // namespace
}  // namespace muster::transport::test
