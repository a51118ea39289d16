// How streams between nodes are cut.
#include "transport/span/pair_plan.hpp"

#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/launch_once.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

// The chunks of what node 0 sends node 1 in a ring of two members: one face of f32.
std::vector<PairStream::Chunk> chunks_of(std::uint64_t count, std::size_t direct_from) {
  const auto shape = test::shape_of(MUSTER_EXCHANGE, MUSTER_F32, 0, 2, count, test::Place::kApart);
  const auto made = test::make_case(shape);
  std::vector<std::byte> arena = made.before;
  const auto shares = *test::shares_of(shape.collective, 2, made.members, arena.data());
  const Signature signature = signature_of(shape.collective, shares[0], 2);
  const LocalMember member{&shares[0], nullptr, bases_of(shares[0]), &signature};
  Span span;
  span.nodes = {NodeIndex(0), NodeIndex(1)};
  span.node_of = {0, 1};
  const PairPlan plan(shape.collective, span, std::span(&member, 1), direct_from);
  EXPECT_EQ(plan.between.at(1).out.bytes, 4 * count);
  return plan.between.at(1).out.chunks;
}

std::size_t longest(const std::vector<PairStream::Chunk>& chunks) {
  return std::ranges::max_element(chunks, {}, &PairStream::Chunk::bytes)->bytes();
}

// Goal:   few faces move without rendezvous, whose answers would wait behind what this node sends: in
//         messages below 64 KiB. Longer streams move in longer ones, also if no message may be direct.
TEST(PairPlan, CutsFacesIntoMessagesWithoutRendezvous) {
  constexpr std::size_t kDirectFrom = 256 << 10, kRendezvous = 64 << 10;
  for (const std::uint64_t count : {2'000u, 16'368u, 16'380u, 20'000u, 65'000u}) {
    const auto chunks = chunks_of(count, kDirectFrom);
    EXPECT_LE(longest(chunks), kRendezvous - 64) << count;
    EXPECT_LE(chunks.size(), 2 * (4 * count / kRendezvous + 1)) << count;
    std::uint64_t at = 0;
    for (const PairStream::Chunk& each : chunks) {
      EXPECT_EQ(each.begin, at) << count;
      at = each.end;
    }
    EXPECT_EQ(at, 4 * count);
  }
  for (const std::size_t direct_from : {kDirectFrom, SIZE_MAX})
    EXPECT_GE(longest(chunks_of(80'000, direct_from)), 2 * kRendezvous);
}

}  // namespace
}  // namespace muster::transport::span
