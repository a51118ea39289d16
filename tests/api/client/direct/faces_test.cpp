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
  face.dtype = MUSTER_F32;
  face.peer = peer;
  face.dims = 1;
  face.size[0] = kCount;
  face.stride[0] = 1;
  face.data = data;
  return face;
}

// Goal:   data that a sender writes after it has learned of the epoch's end is no result.
// Method: rank 1 finds the list of rank 0 in its slot; when it is about to read the face itself, the group
//         ends, and the program of rank 0, whose call has returned, writes its array.
class Faces : public ::testing::Test {
 protected:
  // Rank 0 gives a face to rank 1; other ranks take part and exchange nothing.
  DirectPlan plan(DirectWorld& world, std::uint32_t rank) const {
    Collective what;
    what.op = MUSTER_EXCHANGE;
    what.dtype = MUSTER_U8;
    Share share;
    share.index = static_cast<std::int32_t>(rank);
    if (rank == 0) share.sends = {row(1, given(world))};
    if (rank == 1) share.receives = {row(0, taken(world))};
    return world.plan(rank, what, share);
  }
  static std::byte* given(DirectWorld& world) { return world.arena(); }
  static std::byte* taken(DirectWorld& world) { return world.arena() + (1 << 16); }
};

TEST_F(Faces, DoNotCountOnceTheirGiverMayWriteThem) {
  DirectWorld world(2, 1 << 20, Machine{64, 2, true});
  std::thread rank_0;
  Outcome of_giver = Outcome::kDone;
  world.on_first_look = [&](std::uint32_t rank) {
    ASSERT_EQ(rank, 1u);
    world.end({Code::kAborted, -1, "enough"});
    rank_0.join();
    std::fill_n(given(world), kCount * 4, std::byte{7});
  };
  rank_0 = std::thread([&] { of_giver = world.run(0, plan(world, 0)); });
  EXPECT_EQ(world.run(1, plan(world, 1)), Outcome::kBroken);
  EXPECT_EQ(taken(world)[0], std::byte{7}) << "the case that is meant";
  EXPECT_EQ(of_giver, Outcome::kBroken);
}

// Goal:   a member that leaves in order once it is done spoils nothing for the others.
// Method: rank 2 has done its part and leaves when rank 1 is about to read the face of rank 0.
TEST_F(Faces, CountAlthoughAnotherMemberHasLeft) {
  DirectWorld world(3, 1 << 20, Machine{64, 3, true});
  std::fill_n(given(world), kCount * 4, std::byte{7});
  Outcome outcomes[3] = {};
  std::thread others[3];
  world.on_first_look = [&](std::uint32_t) {
    others[2].join();
    world.board().segments().set_attached(Rank(2), false);
    world.lose({Code::kPeerLost, 2, "rank 2 left"});
  };
  for (const std::uint32_t rank : {0u, 2u})
    others[rank] = std::thread([&, rank] { outcomes[rank] = world.run(rank, plan(world, rank)); });
  outcomes[1] = world.run(1, plan(world, 1));
  others[0].join();
  for (const Outcome outcome : outcomes) EXPECT_EQ(outcome, Outcome::kDone);
  EXPECT_EQ(taken(world)[kCount * 4 - 1], std::byte{7});
}

// A view of `count` elements in so many dims, two in each but the last, with a gap in each but the last.
Face deep(std::int32_t peer, std::uint32_t tag, std::int32_t dims, std::int64_t count, std::byte* data) {
  Face face = row(peer, data);
  face.tag = tag;
  face.dims = dims;
  std::int64_t rest = count;
  for (std::size_t d = 0; d < static_cast<std::size_t>(dims); ++d) {
    const bool last = d + 1 == static_cast<std::size_t>(dims);
    face.size[d] = last ? rest : 2;
    rest /= 2;
    face.stride[d] = last ? 1 : rest + (std::int64_t{1} << (6 - d));
  }
  return face;
}

// Goal:   a list has entries of any lengths, one behind the other, and each receive finds its own.
// Method: faces of 0 to 8 dims in turn; few and many, small ones that are packed and large ones that are read
//         in place. Their numbers say which element of which face they are.
TEST_F(Faces, HaveAnyDimsInOneList) {
  struct Lists {
    std::uint32_t faces;
    std::int64_t count;
  };
  for (const Lists& lists : {Lists{5, 128}, Lists{8, 1024}, Lists{40, 128}, Lists{680, 128}}) {
    constexpr std::size_t kRoom = 2048 * sizeof(float);  // of one face
    constexpr std::int32_t kDims = MUSTER_TENSOR_DIMS_MAX + 1;
    DirectWorld world(2, 2 * 680 * kRoom, Machine{64, 2, true});
    std::byte* const target = world.arena() + 680 * kRoom;
    Collective what;
    what.op = MUSTER_EXCHANGE;
    what.dtype = MUSTER_U8;
    Share giver, getter;
    getter.index = 1;
    const auto number = [&](std::uint32_t face, std::int64_t element) {
      return static_cast<float>(face * lists.count + element);
    };
    const auto length = [&](std::uint32_t face) { return face % kDims == 0 ? 1 : lists.count; };
    for (std::uint32_t k = 0; k < lists.faces; ++k) {
      const auto dims = static_cast<std::int32_t>(k % kDims);
      giver.sends.push_back(deep(1, k, dims, length(k), world.arena() + k * kRoom));
      const Face& face = giver.sends.back();
      for (std::int64_t i = 0; i < length(k); ++i) {
        std::int64_t rest = i, at = 0;
        for (auto d = static_cast<std::size_t>(dims); d-- > 0; rest /= face.size[d])
          at += rest % face.size[d] * face.stride[d];
        reinterpret_cast<float*>(face.data)[at] = number(k, i);
      }
      getter.receives.push_back(row(0, target + k * kRoom));
      getter.receives.back().tag = k;
      getter.receives.back().size[0] = length(k);
    }
    std::thread rank_0([&] { EXPECT_EQ(world.run(0, world.plan(0, what, giver)), Outcome::kDone); });
    EXPECT_EQ(world.run(1, world.plan(1, what, getter)), Outcome::kDone);
    rank_0.join();
    for (std::uint32_t k = 0; k < lists.faces; ++k)
      for (std::int64_t i = 0; i < length(k); ++i)
        ASSERT_EQ(reinterpret_cast<float*>(target + k * kRoom)[i], number(k, i))
            << "of " << lists.faces << " faces: face " << k << ", element " << i;
  }
}

}  // namespace
}  // namespace muster::client::test
