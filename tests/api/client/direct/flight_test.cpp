#include "api/client/direct/flight.hpp"

#include "tests/api/client/direct/direct_world.hpp"

namespace muster::client::test {
namespace {

// Runs a barrier on every rank, and returns how it went on rank 0.
Outcome barrier(DirectWorld& world) {
  Collective what;
  what.op = MUSTER_BARRIER;
  std::vector<Outcome> outcomes(world.ranks());
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < world.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto ranks = static_cast<std::int32_t>(world.ranks());
      const Share mine = *make_share(what, static_cast<std::int32_t>(rank), ranks, {});
      outcomes[rank] = world.run(rank, world.plan(rank, what, mine));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes[0];
}

TEST(FlightRing, RecordsEachOperationOfEachRank) {
  DirectWorld world(2, 4096, {2, 2, true});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(barrier(world), Outcome::kDone);
  for (const std::uint32_t rank : {0u, 1u}) {
    const auto flights = world.board().records().flights(Rank(rank));
    ASSERT_EQ(flights.size(), 3u);
    for (std::size_t i = 0; i < flights.size(); ++i) {
      EXPECT_EQ(flights[i].index, i + 1);
      EXPECT_EQ(flights[i].number, i + 1);
      EXPECT_EQ(flights[i].epoch, 1u);
      EXPECT_EQ(flights[i].member, rank);
      EXPECT_EQ(flights[i].what.op, MUSTER_BARRIER);
      EXPECT_EQ(flights[i].state, shm::DirectRecord::State::kWell);
      EXPECT_GT(flights[i].begun.count(), 0);
      EXPECT_FALSE(flights[i].ended) << "nobody has asked for the time";
    }
  }
  EXPECT_EQ(world.board().records().flights(Rank(0), 2).size(), 1u);
}

TEST(FlightRing, SaysWhenOperationsEndWhileATraceIsTaken) {
  DirectWorld world(2, 4096, {2, 2, true});
  world.board().segments().set_recording(true);
  ASSERT_EQ(barrier(world), Outcome::kDone);
  world.board().segments().set_recording(false);
  ASSERT_EQ(barrier(world), Outcome::kDone);
  const auto flights = world.board().records().flights(Rank(0));
  ASSERT_EQ(flights.size(), 2u);
  ASSERT_TRUE(flights[0].ended);
  EXPECT_GE(*flights[0].ended, flights[0].begun);
  EXPECT_FALSE(flights[1].ended);
}

// Goal:   the ring keeps the latest, and says how many it has lost.
TEST(FlightRing, KeepsTheLatest) {
  std::vector<std::uint64_t> memory((shm::kMemberRegionsOffset + 7) / 8);
  const std::uint32_t recording = 0;
  FlightRing ring(reinterpret_cast<std::byte*>(memory.data()), &recording);
  ring.ended(shm::DirectRecord::State::kWell, Instant(1));  // nothing has begun: nothing is written
  for (std::uint64_t i = 1; i <= shm::kDirectRecords + 5; ++i) {
    ring.began({0, 8, 8}, 0, 1, i, Instant(static_cast<std::int64_t>(i)));
    ring.ended(i % 2 == 0 ? shm::DirectRecord::State::kWell : shm::DirectRecord::State::kBadly, Instant(0));
  }
  const auto* records = reinterpret_cast<const shm::DirectRecord*>(
      reinterpret_cast<const std::byte*>(memory.data()) + shm::kDirectRecordsOffset);
  const auto* header = reinterpret_cast<const shm::DirectHeader*>(memory.data());
  EXPECT_EQ(header->recorded, shm::kDirectRecords + 5);
  EXPECT_EQ(records[5].index, shm::kDirectRecords + 5) << "the latest";
  EXPECT_EQ(records[6].index, 6u) << "the oldest that is left";
  EXPECT_EQ(records[6].end, static_cast<std::uint64_t>(shm::DirectRecord::State::kWell));
}

}  // namespace
}  // namespace muster::client::test
