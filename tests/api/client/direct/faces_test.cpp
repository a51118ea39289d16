// The neighbour exchange when its group ends in the middle of it.
#include "api/client/direct/faces.hpp"

#include "tests/api/client/direct/direct_world.hpp"

#include <algorithm>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace muster::client::test {
namespace {

constexpr std::int64_t kCount = 4096;  // f32: more than is packed

Face row(std::int32_t peer, std::byte* data) {
  Face face;
  face.peer = peer;
  face.dims = 1;
  face.size[0] = kCount;
  face.stride[0] = 1;
  face.data = data;
  return face;
}

// Goal:   what a giver writes after it has heard of the generation's end is no result.
// Method: rank 1 finds the list of rank 0 in its slot; when it is about to read the face itself, the group
//         ends, and the program of rank 0, whose call has returned, writes its array.
TEST(Faces, DoNotCountOnceTheirGiverMayWriteThem) {
  DirectWorld world(2, 1 << 20, Machine{64, 2, true});
  std::byte* given = world.arena();
  std::byte* taken = world.arena() + (1 << 16);
  Collective what;
  what.op = MUSTER_EXCHANGE;
  what.dtype = MUSTER_F32;
  Share giver;
  giver.index = 0;
  giver.sends = {row(1, given)};
  Share taker;
  taker.index = 1;
  taker.receives = {row(0, taken)};
  std::thread rank_0;
  Outcome of_giver = Outcome::kDone;
  world.on_first_look = [&](std::uint32_t rank) {
    ASSERT_EQ(rank, 1u);
    world.board().break_group(kGroupId, {Code::kAborted, -1, "enough", 0}, engine::Board::End::kForAll);
    rank_0.join();
    std::fill_n(given, kCount * 4, std::byte{7});
  };
  rank_0 = std::thread([&] { of_giver = world.run(0, world.plan(0, what, giver)); });
  EXPECT_EQ(world.run(1, world.plan(1, what, taker)), Outcome::kBroken);
  EXPECT_EQ(taken[0], std::byte{7}) << "the case that is meant";
  EXPECT_EQ(of_giver, Outcome::kBroken);
}

}  // namespace
}  // namespace muster::client::test
