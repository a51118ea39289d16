// Priorities between lanes (decision D8), from the rings of two clients to the parts that are run.
#include "daemon/engine/job/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/manual_clock.hpp"

#include <memory>
#include <vector>

namespace muster::engine {
namespace {

constexpr std::uint32_t kWorld = 2;
constexpr std::uint64_t kBulk = 256 << 10;  // floats: many parts
constexpr std::uint64_t kSmall = 16;        // one

class Priorities : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = Engine::create(test::small_job(kWorld), clock_, nullptr, Engine::Pooling::kByHand);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      auto attached = engine_->attach(Rank(rank), 1);
      ASSERT_TRUE(attached) << attached.error().text();
      clients_.push_back(std::make_unique<test::RingClient>(*attached->session));
      bulk_.push_back(all_reduce(kBulk));
      small_.push_back(all_reduce(kSmall));
    }
  }
  // A plan of the client that came last.
  std::uint64_t all_reduce(std::uint64_t count) {
    test::RingClient& client = *clients_.back();
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.dtype = MUSTER_F32;
    said.redop = MUSTER_SUM;
    said.group = Handle(0, 77).bits;
    said.count = count;
    said.source = {client.buffer(*engine_, count * sizeof(float)), 0};
    said.target = {client.buffer(*engine_, count * sizeof(float)), 0};
    const auto plan = engine_->plans().collective(client.session(), said, {});
    EXPECT_TRUE(plan) << plan.error().text();
    return plan->bits;
  }
  void start(const std::vector<std::uint64_t>& plans, muster_lane lane) {
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) clients_[rank]->start(plans[rank], lane);
    engine_->do_work();
  }
  // Parts until the latest start on the lane is over at both ranks. The turn between two of them is the one
  // that a worker takes when progress is due.
  std::uint32_t parts_until(muster_lane lane) {
    std::uint32_t parts = 0;
    while (clients_[0]->latest(lane) == Code::kPending || clients_[1]->latest(lane) == Code::kPending) {
      EXPECT_EQ(engine_->run_once(), 1u);
      ++parts;
      engine_->do_work();
      if (parts > 1000) ADD_FAILURE() << "lane " << lane << " never ends";
      if (parts > 1000) return parts;
    }
    return parts;
  }

  muster::test::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<test::RingClient>> clients_;
  std::vector<std::uint64_t> bulk_, small_;
};

// Goal:   a more urgent operation waits for no part that has not begun. An equally urgent one waits for one
//         part, and a less urgent one for all.
// Method: a bulk reduction of which some parts have run, then a small one, for every two lanes.
TEST_F(Priorities, HoldBetweenTheParts) {
  start(bulk_, MUSTER_LANE_ALLREDUCE);
  const std::uint32_t all_parts = parts_until(MUSTER_LANE_ALLREDUCE);
  ASSERT_GT(all_parts, 8u);
  for (muster_lane bulk = 0; bulk < MUSTER_LANE_CLASSES; ++bulk)
    for (muster_lane small = 0; small < MUSTER_LANE_CLASSES; ++small) {
      if (small == bulk) continue;
      start(bulk_, bulk);
      constexpr std::uint32_t kBefore = 2;
      for (std::uint32_t i = 0; i < kBefore; ++i) ASSERT_EQ(engine_->run_once(), 1u);
      start(small_, small);
      const std::uint32_t parts = parts_until(small);
      const auto of_bulk = scheduler::priority_of(bulk);
      const auto of_small = scheduler::priority_of(small);
      const std::uint32_t most = of_small < of_bulk ? 1 : 2;
      if (of_small > of_bulk) {
        EXPECT_EQ(parts, all_parts - kBefore + 1) << "lane " << small << " behind lane " << bulk;
      } else {
        EXPECT_LE(parts, most) << "lane " << small << " before lane " << bulk;
        EXPECT_EQ(clients_[0]->latest(bulk), Code::kPending);
      }
      static_cast<void>(parts_until(bulk));
    }
}

// Goal:   the order of D8 in the four levels that there are.
TEST_F(Priorities, AreInTheOrderOfTheDesign) {
  using scheduler::priority_of;
  constexpr muster_lane kOrder[] = {MUSTER_LANE_HALO,   MUSTER_LANE_SMALL,     MUSTER_LANE_GATHER,
                                    MUSTER_LANE_REDUCE, MUSTER_LANE_ALLREDUCE, MUSTER_LANE_COPY};
  for (std::size_t i = 1; i < std::size(kOrder); ++i)
    EXPECT_LE(priority_of(kOrder[i - 1]), priority_of(kOrder[i])) << scheduler::lane_class_name(kOrder[i]);
  EXPECT_LT(priority_of(MUSTER_LANE_SMALL), priority_of(MUSTER_LANE_GATHER));
  EXPECT_LT(priority_of(MUSTER_LANE_REDUCE), priority_of(MUSTER_LANE_ALLREDUCE));
  EXPECT_LT(priority_of(MUSTER_LANE_ALLREDUCE), priority_of(MUSTER_LANE_COPY));
  EXPECT_EQ(priority_of(MUSTER_LANE_COMPUTE), priority_of(MUSTER_LANE_ALLREDUCE));
}

}  // namespace
}  // namespace muster::engine
