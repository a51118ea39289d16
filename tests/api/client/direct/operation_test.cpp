// Single operations that end otherwise than well: who may still rely on what.
#include "api/client/direct/operation.hpp"

#include "api/client/direct/algorithms.hpp"
#include "tests/api/client/direct/direct_world.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace muster::client::test {
namespace {

constexpr std::uint64_t kLarge = 1 << 20;  // bytes: read where it is
constexpr std::uint64_t kStaged = 8 << 10;
const scheduler::Cause kLost{Code::kPeerLost, 2, "rank 2 died", 1};
const scheduler::Cause kEnough{Code::kAborted, -1, "enough", 0};

class Operations : public ::testing::Test {
 protected:
  Collective collective(muster_op op, std::uint64_t bytes) const {
    Collective what;
    what.op = op;
    what.dtype = MUSTER_U8;
    what.count = bytes;
    return what;
  }
  DirectPlan plan(std::uint32_t rank, const Collective& what, bool gives, bool takes) {
    Share mine;
    mine.index = static_cast<std::int32_t>(rank);
    if (gives) mine.source = given();
    if (gives) mine.source_blocks = {{0, what.count}};
    if (takes) mine.target = taken();
    const std::uint64_t blocks = what.op == MUSTER_ALL_GATHER ? world_.ranks() : 1;
    for (std::uint64_t k = 0; takes && k < blocks; ++k)
      mine.target_blocks.push_back({k * what.count, what.count});
    return world_.plan(rank, what, mine);
  }
  Outcome run(std::uint32_t rank, const Collective& what, bool gives, bool takes) {
    return world_.run(rank, plan(rank, what, gives, takes));
  }
  // Rank 0 gives what rank 1 takes.
  Outcome broadcast(std::uint32_t rank) {
    return run(rank, collective(MUSTER_BROADCAST, kLarge), rank == 0, rank != 0);
  }
  Outcome barrier(std::uint32_t rank) { return run(rank, collective(MUSTER_BARRIER, 0), false, false); }
  Outcome gather(std::uint32_t rank) { return run(rank, collective(MUSTER_ALL_GATHER, kStaged), true, true); }
  DirectPlan plan_of_message(std::uint32_t rank, std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
    Collective what = collective(rank == from ? MUSTER_SEND : MUSTER_RECV, bytes);
    what.root = static_cast<std::int32_t>(from);
    what.receiver = static_cast<std::int32_t>(to);
    return plan(rank, what, rank == from, rank == to);
  }
  Outcome transfer(std::uint32_t rank, std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
    return world_.run(rank, plan_of_message(rank, from, to, bytes));
  }
  // Rank 0 gives so many faces, together kLarge bytes, to rank 1.
  Outcome exchange(std::uint32_t rank, std::uint32_t faces) {
    Share mine;
    mine.index = static_cast<std::int32_t>(rank);
    for (std::uint32_t k = 0; k < faces; ++k) {
      const std::uint64_t bytes = kLarge / faces;
      Face face;
      face.dtype = MUSTER_U8;
      face.peer = rank == 0 ? 1 : 0;
      face.tag = k;
      face.dims = 1;
      face.size[0] = static_cast<std::int64_t>(bytes);
      face.stride[0] = 1;
      face.data = (rank == 0 ? given() : taken()) + k * bytes;
      if (rank == 0) mine.sends.push_back(face);
      if (rank == 1) mine.receives.push_back(face);
    }
    return world_.run(rank, world_.plan(rank, collective(MUSTER_EXCHANGE, 0), mine));
  }
  // Both at once; what rank 0 heard, and what rank 1.
  template<class Call>
  std::pair<Outcome, Outcome> both(Call call) {
    Outcome first = Outcome::kCorrupt;
    std::thread rank_0([&] { first = call(0u); });
    const Outcome second = call(1u);
    rank_0.join();
    return {first, second};
  }
  // Rank 1 is about to read what rank 0 gave when the engine dies; rank 0 notices first, and its program
  // writes its memory.
  template<class Call>
  std::pair<Outcome, Outcome> without_engine(Call call) {
    Outcome first = Outcome::kDone;
    std::thread rank_0;
    world_.on_first_look = [&](std::uint32_t rank) {
      if (rank != 1) return;
      world_.engine_gone = true;
      rank_0.join();
      std::fill_n(given(), kLarge, std::byte{7});
    };
    rank_0 = std::thread([&] { first = call(0u); });
    const Outcome second = call(1u);
    if (rank_0.joinable()) rank_0.join();
    EXPECT_EQ(taken()[0], std::byte{7}) << "the case that is meant";
    return {first, second};
  }
  std::byte* given() { return world_.arena(); }
  std::byte* taken() { return world_.arena() + kLarge; }

  DirectWorld world_{3, 2 * kLarge, Machine{1, 3, true}};
};

using Pair = std::pair<Outcome, Outcome>;
constexpr Pair kWell{Outcome::kDone, Outcome::kDone};

// ---- an engine that is gone --------------------------------------------------------------------------

TEST_F(Operations, DoNotCountWhatAGiverMayWriteThatLeftWithoutItsEngine) {
  std::thread rank_2([&] { broadcast(2); });  // well, or alone
  const Pair found = without_engine([&](std::uint32_t rank) { return broadcast(rank); });
  rank_2.join();
  EXPECT_EQ(found, Pair(Outcome::kAlone, Outcome::kAlone));
}

TEST_F(Operations, DoNotCountAMessageWhoseSenderLeftWithoutItsEngine) {
  const Pair found = without_engine([&](std::uint32_t rank) { return transfer(rank, 0, 1, kLarge); });
  EXPECT_EQ(found, Pair(Outcome::kAlone, Outcome::kAlone));
}

// Goal:   the same of faces, where their list is in a stage and stands.
TEST_F(Operations, DoNotCountFacesWhoseGiverLeftWithoutItsEngine) {
  std::thread rank_2([&] { exchange(2, 0); });
  const Pair found = without_engine([&](std::uint32_t rank) { return exchange(rank, 32); });
  rank_2.join();
  EXPECT_EQ(found, Pair(Outcome::kAlone, Outcome::kAlone));
}

// ---- somebody who will not come --------------------------------------------------------------------

// Goal:   two members who are there pass messages although a third will not come.
TEST_F(Operations, PassMessagesBesideAMemberThatIsAbsent) {
  world_.board().segments().set_attached(Rank(2), false);
  world_.lose(kLost);
  world_.board().epochs().set_absence(kGroupId, std::make_shared<const scheduler::Cause>(kLost));
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(transfer(rank, 0, 1, 8), Outcome::kRefused) << "the departure is told";
    world_.hear(rank);
  }
  const auto message = [&](std::uint32_t rank) { return transfer(rank, 0, 1, kLarge); };
  EXPECT_EQ(both(message), kWell);
  EXPECT_EQ(barrier(0), Outcome::kRefused);
  world_.hear(0);
  EXPECT_EQ(both(message), kWell) << "rank 0 alone was refused something: their messages go on";
  EXPECT_EQ(transfer(0, 0, 2, 8), Outcome::kRefused);
  EXPECT_EQ(transfer(0, 2, 0, 8), Outcome::kRefused);
  EXPECT_TRUE(explained(plan_of_message(0, 0, 2, 8))) << "or it would be tried for ever";
  EXPECT_TRUE(explained(plan_of_message(0, 2, 0, 8)));
  EXPECT_FALSE(explained(plan_of_message(0, 0, 1, 8)));
  EXPECT_FALSE(explained(plan_of_message(0, 1, 0, 8)));
}

TEST_F(Operations, TakeAMessageThatHasComeAlthoughAThirdMemberLeaves) {
  world_.on_first_look = [&](std::uint32_t) {
    world_.board().segments().set_attached(Rank(2), false);
    world_.lose(kLost);
  };
  std::fill_n(given(), kLarge, std::byte{7});
  EXPECT_EQ(both([&](std::uint32_t rank) { return transfer(rank, 0, 1, kLarge); }).second, Outcome::kDone);
  EXPECT_EQ(taken()[kLarge - 1], std::byte{7});
}

// Goal:   nobody waits for readers of an operation that never began.
// Method: rank 0 is refused twice, with a stage taken each time; then all come, and use each stage again. A
//         barrier has the position that the refused ones would have had, and nobody reads anything in it.
TEST_F(Operations, WaitForNoReadersOfWhatNeverBegan) {
  world_.board().epochs().set_absence(kGroupId, std::make_shared<const scheduler::Cause>(kLost));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(gather(0), Outcome::kRefused);
    world_.hear(0);
  }
  world_.board().epochs().set_absence(kGroupId, nullptr);
  world_.timeout = std::chrono::hours(1);  // a wait for readers ends without a word then
  const auto all = [&](std::uint32_t rank) {
    EXPECT_EQ(barrier(rank), Outcome::kDone);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(gather(rank), Outcome::kDone);
  };
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) ranks.emplace_back(all, rank);
  for (std::thread& rank : ranks) rank.join();
}

// Goal:   the engine is asked for the other side of a message, and not for the caller itself.
TEST_F(Operations, AskForTheOtherSideOfAMessageThatIsOverdue) {
  world_.timeout = std::chrono::milliseconds(1);
  std::vector<Wanted> asked;
  world_.on_overdue = [&](std::uint32_t, const Wanted& wanted) {
    asked.push_back(wanted);
    world_.end(kEnough);
  };
  EXPECT_EQ(transfer(1, 0, 1, kLarge), Outcome::kBroken) << "nobody sends";
  world_.hear(1);
  world_.hear(2);
  EXPECT_EQ(transfer(1, 1, 2, kLarge), Outcome::kBroken) << "nobody receives";
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].kind, shm::DirectWait::kMessage);
  EXPECT_EQ(asked[0].peer, 0u);
  EXPECT_EQ(asked[1].kind, shm::DirectWait::kReceived);
  EXPECT_EQ(asked[1].peer, 2u);
}

// Goal:   both sides of a message in which they differ ask the engine about that message, and the other side.
TEST_F(Operations, AskForTheOtherSideOfAMessageInWhichTheyDiffer) {
  std::array<Wanted, 2> asked;
  const auto differ = [&](std::uint32_t rank) {
    const DirectPlan mine = plan_of_message(rank, 0, 1, kLarge - rank);
    const Outcome outcome = world_.run(rank, mine);
    asked[rank] = disagreed_in(mine);
    return outcome;
  };
  EXPECT_EQ(both(differ), Pair(Outcome::kDisagree, Outcome::kDisagree));
  EXPECT_EQ(asked[0].kind, shm::DirectWait::kReceived);
  EXPECT_EQ(asked[0].peer, 1u);
  EXPECT_EQ(asked[1].kind, shm::DirectWait::kMessage);
  EXPECT_EQ(asked[1].peer, 0u);
  EXPECT_EQ(asked[0].position, asked[1].position);
}

// ---- impossible announcements ----------------------------------------------------------------------

// Goal:   nobody reads behind a member's stages, whichever of them it says that its slices lie in.
// Method: it gives what it should and has come to the end of the first chunk; only the number is a lie.
TEST_F(Operations, ReadSlicesOutOfNoStageThatThereIsNot) {
  Collective what = collective(MUSTER_ALL_REDUCE, kLarge);
  what.redop = MUSTER_SUM;
  for (const std::uint32_t number : {shm::kStages, shm::kLocationIndexMax}) {
    DirectWorld two(2, 2 * kLarge, Machine{2, 2, true});
    std::array<DirectPlan, 2> plans;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Share mine;
      mine.index = static_cast<std::int32_t>(rank);
      mine.source = two.arena();
      mine.target = two.arena() + kLarge;
      mine.source_blocks = mine.target_blocks = {{0, kLarge}};
      plans[rank] = two.plan(rank, what, mine);
      plans[rank].choice.algorithm = Algorithm::kSliced;
      plans[rank].body = run_sliced;
    }
    Channel& liar = two.channel(1);
    ASSERT_TRUE(liar.begin());
    Announced& said = liar.arrivals().draft();
    said = {};
    said.common = plans[1].signature.common;
    said.location_bits = shm::pack_location(plans[1].home);
    said.say(Announced::Stage{shm::pack_location({shm::PayloadLocation::Kind::kStage, number, 1})});
    liar.arrive(plans[1].handle);
    liar.phases().set(liar.at(), 1);
    EXPECT_EQ(two.run(0, plans[0]), Outcome::kCorrupt) << number;
  }
}

// ---- failures that are reported after a run --------------------------------------------------------

// Goal:   memory that went with its owner explains no later failure.
// Method: rank 1 asks for the memory of rank 0 when that is gone, with all that it had given.
TEST_F(Operations, ForgetTheTroubleThatAnEndExplains) {
  Outcome of_giver = Outcome::kDone;
  std::thread rank_0;
  std::thread rank_2;
  world_.on_first_look = [&](std::uint32_t) {
    world_.end(kEnough);
    rank_0.join();
    world_.reattach(0);
    world_.arenas_gone = true;
  };
  rank_0 = std::thread([&] { of_giver = exchange(0, 1); });
  rank_2 = std::thread([&] { exchange(2, 0); });
  EXPECT_EQ(exchange(1, 1), Outcome::kBroken);
  rank_2.join();
  EXPECT_EQ(of_giver, Outcome::kBroken);
  EXPECT_TRUE(world_.memory(1).take_trouble().ok());
}

}  // namespace
}  // namespace muster::client::test
