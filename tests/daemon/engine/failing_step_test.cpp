// An engine whose communicators fail some of their steps: at launch, or late, from another thread (D20).
#include "daemon/engine/job/engine.hpp"

#include "api/base/words.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/fault_seeds.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/faulty_factory.hpp"
#include "transport/loopback/loopback.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::engine {
namespace {

using transport::test::Fault;
using transport::test::FaultyFactory;

constexpr std::uint32_t kWorld = 3;
constexpr std::uint64_t kAll = Handle(0, 77).bits;
constexpr std::uint64_t kCount = 24;
constexpr Nanos kTurn = std::chrono::microseconds(10);

class FailingStep : public ::testing::Test {
 protected:
  void SetUp() override {
    // All communicators ask the same plan: the test's of that moment.
    auto faulty = std::make_shared<FaultyFactory>(
        transport::loopback_factory(), [this](const Collective& what) { return plan_(what); }, clock_,
        FaultyFactory::Ends::kInProgress);
    factory_ = faulty.get();
    auto engine = Engine::create(small_, clock_, nullptr, Engine::Pooling::kByHand, nullptr,
                                 {{std::move(faulty)}, nullptr});
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      auto attached = engine_->attach(Rank(rank), 1);
      ASSERT_TRUE(attached) << attached.error().text();
      clients_.push_back(std::make_unique<test::RingClient>(*attached->session));
      buffers_.push_back(clients_[rank]->buffer(*engine_, kCount * sizeof(float)));
      all_.push_back(all_reduce(rank, kAll));
    }
    constexpr std::array<std::int32_t, 2> kPair{1, 2};
    for (const std::uint32_t rank : {1u, 2u}) {
      const auto group = engine_->groups().make(clients_[rank]->session(), "pair", kPair);
      ASSERT_TRUE(group) << group.error().text();
      pair_.push_back(all_reduce(rank, *group));
    }
  }
  std::uint64_t all_reduce(std::uint32_t rank, std::uint64_t group) {
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.dtype = MUSTER_F32;
    said.redop = MUSTER_SUM;
    said.group = group;
    said.count = kCount;
    said.source = said.target = {buffers_[rank], 0};
    const auto plan = engine_->plans().collective(clients_[rank]->session(), said, {});
    EXPECT_TRUE(plan) << plan.error().text();
    return plan ? plan->bits : 0;
  }
  void start_all(muster_lane lane) {
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) clients_[rank]->start(all_[rank], lane);
  }
  void start_pair(muster_lane lane) {
    for (const std::uint32_t rank : {1u, 2u}) clients_[rank]->start(pair_[rank - 1], lane);
  }
  void reset_all(muster_lane lane) {
    for (auto& client : clients_) client->reset(lane);
  }
  // Until nothing is left to do; what stalls or is lost is left.
  void turn() {
    while (engine_->run_once() > 0 || factory_->held() > unending_)
      if (factory_->held() > 0) clock_.advance(kTurn);
  }
  // Time passes for an engine that takes its turns.
  void pass(Nanos time) {
    constexpr Nanos kStep = std::chrono::milliseconds(50);
    for (Nanos gone{0}; gone < time; gone += kStep) {
      clock_.advance(kStep);
      while (engine_->run_once() > 0) {
      }
    }
  }
  // All members hear that, and the engine and the lane go on.
  void expect_told(Code code, const std::string& text) {
    start_all(MUSTER_LANE_SMALL);
    start_pair(MUSTER_LANE_HALO);
    const muster_kernel fill = muster_fill(muster_view1(buffers_[0], 0, MUSTER_F32, kCount), 1.0);
    const auto kernel = engine_->plans().kernel(clients_[0]->session(), fill);
    ASSERT_TRUE(kernel);
    clients_[0]->start(kernel->bits, MUSTER_LANE_COMPUTE, clients_[0]->latest_point(MUSTER_LANE_SMALL));
    turn();
    for (auto& client : clients_) {
      EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), code);
      const auto failure = client->failure(MUSTER_LANE_SMALL);
      ASSERT_TRUE(failure) << failure.error().text();
      EXPECT_EQ(failure->text, text);
    }
    EXPECT_EQ(clients_[0]->latest(MUSTER_LANE_COMPUTE), Code::kDependency);
    EXPECT_TRUE(engine_->health().ok()) << engine_->health().text();
    for (const std::uint32_t rank : {1u, 2u})
      EXPECT_EQ(clients_[rank]->latest(MUSTER_LANE_HALO), Code::kOk) << "another group";

    reset_all(MUSTER_LANE_SMALL);
    start_all(MUSTER_LANE_SMALL);
    turn();
    for (auto& client : clients_) EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kOk);
  }
  // The first step of three ranks gets that fault, all others none.
  void plan_once(Fault fault) {
    plan_ = [this, fault = std::move(fault)](const Collective&) {
      return launches_++ == 0 ? fault : Fault{};
    };
  }

  muster::test::ManualClock clock_;
  const control::JobSpec small_ = test::small_job(kWorld);
  std::size_t unending_ = 0;  // steps that stall
  transport::test::FaultPlan plan_ = [](const Collective&) { return Fault{}; };
  std::uint32_t launches_ = 0;
  FaultyFactory* factory_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<test::RingClient>> clients_;
  std::vector<std::uint64_t> buffers_, all_, pair_;
};

TEST_F(FailingStep, IsToldToAllItsMembersWhenItFailsLate) {
  plan_once({{}, Status(Code::kPeerLost, "the link to node 3 broke"), std::chrono::milliseconds(1)});
  expect_told(Code::kPeerLost, "group dp_shard: all_reduce on lane small failed: the link to node 3 broke");
}

TEST_F(FailingStep, IsToldToAllItsMembersWhenItsLaunchFails) {
  plan_once({Status(Code::kNoResource, "no memory for the send"), {}, Nanos(0)});
  expect_told(
      Code::kDevice,
      "group dp_shard: all_reduce on lane small failed: MUSTER_ERR_NO_RESOURCE: no memory for the send");
}

// Goal:   a step that goes on outside is given up at its deadline. All members learn of that, the engine and
//         other groups go on, and its memory stays in quarantine until it is over.
TEST_F(FailingStep, IsGivenUpAtItsDeadlineAndStaysInQuarantine) {
  plan_once({.at_launch = {}, .late = {}, .delay = Nanos(0), .stalls = true, .lost = false});
  unending_ = 1;
  start_all(MUSTER_LANE_SMALL);
  turn();
  EXPECT_EQ(clients_[0]->latest(MUSTER_LANE_SMALL), Code::kPending);
  EXPECT_FALSE(engine_->arm()) << "it is polled while a step goes on outside";
  pass(small_.deadline + std::chrono::seconds(1));
  for (auto& client : clients_) {
    EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kTimeout);
    const auto failure = client->failure(MUSTER_LANE_SMALL);
    ASSERT_TRUE(failure) << failure.error().text();
    EXPECT_EQ(
        failure->text,
        "group dp_shard: all_reduce on lane small " + passed_deadline(small_.deadline) +
            "; all its members had come to it, and what it does between nodes or devices has not ended");
    EXPECT_EQ(client->quarantined(MUSTER_LANE_SMALL), 1u);
  }
  Session& first = clients_[0]->session();
  EXPECT_EQ(engine_->plans().destroy(first, Handle(all_[0])).code(), Code::kBusy);
  EXPECT_EQ(engine_->buffers().free(first, Handle(buffers_[0])).code(), Code::kBusy);
  start_all(MUSTER_LANE_GATHER);
  start_pair(MUSTER_LANE_HALO);
  turn();
  for (auto& client : clients_) EXPECT_EQ(client->latest(MUSTER_LANE_GATHER), Code::kOk);
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_EQ(clients_[rank]->latest(MUSTER_LANE_HALO), Code::kOk);

  unending_ = 0;
  factory_->let_go();
  turn();
  for (auto& client : clients_) {
    EXPECT_EQ(client->quarantined(MUSTER_LANE_SMALL), 0u);
    EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kTimeout) << "as it was told";
  }
  reset_all(MUSTER_LANE_SMALL);
  start_all(MUSTER_LANE_SMALL);
  turn();
  for (auto& client : clients_) EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kOk);
  EXPECT_TRUE(engine_->plans().destroy(first, Handle(all_[0])).ok());
}

// Goal:   a step whose message was lost is cancelled at its deadline, and so ends.
TEST_F(FailingStep, IsCancelledAtItsDeadlineIfItWasLost) {
  plan_once({.at_launch = {}, .late = {}, .delay = Nanos(0), .stalls = false, .lost = true});
  unending_ = 1;
  start_all(MUSTER_LANE_SMALL);
  turn();
  pass(small_.deadline + std::chrono::seconds(1));
  unending_ = 0;
  turn();
  EXPECT_EQ(factory_->held(), 0u);
  for (auto& client : clients_) {
    EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kTimeout);
    EXPECT_EQ(client->quarantined(MUSTER_LANE_SMALL), 0u);
  }
}

// Goal:   a rank that is interrupted gets out of a step that waits outside, and all members hear who it was.
TEST_F(FailingStep, IsGivenUpWhenAMemberIsInterrupted) {
  plan_once({.at_launch = {}, .late = {}, .delay = Nanos(0), .stalls = false, .lost = true});
  unending_ = 1;
  start_all(MUSTER_LANE_SMALL);
  turn();
  shm::InterruptMessage message;
  message.group = kAll;
  message.lane = MUSTER_LANE_SMALL;
  for (int twice = 0; twice < 2; ++twice)
    ASSERT_TRUE(engine_->faults().interrupt(clients_[1]->session(), message).ok());
  unending_ = 0;
  turn();
  EXPECT_EQ(factory_->held(), 0u) << "it was cancelled";
  for (auto& client : clients_) {
    EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kAborted);
    const auto failure = client->failure(MUSTER_LANE_SMALL);
    ASSERT_TRUE(failure) << failure.error().text();
    EXPECT_EQ(failure->culprit_rank, 1);
    EXPECT_EQ(failure->text, "rank 1 was interrupted (muster_interrupt) in an operation of group dp_shard");
  }
  reset_all(MUSTER_LANE_SMALL);
  start_all(MUSTER_LANE_SMALL);
  turn();
  for (auto& client : clients_) EXPECT_EQ(client->latest(MUSTER_LANE_SMALL), Code::kOk);
}

// Goal:   memory of a rank that leaves is kept while a step of its former client goes on, and its next client
//         does not wait for ever behind that step.
TEST_F(FailingStep, OutlivesItsClientWithoutAHang) {
  plan_once({.at_launch = {}, .late = {}, .delay = Nanos(0), .stalls = true, .lost = false});
  unending_ = 1;
  start_all(MUSTER_LANE_SMALL);
  turn();
  engine_->detach(Rank(0), "rank 0 died");
  EXPECT_EQ(engine_->reclaim(), 1u) << "the step may still write into its memory";
  auto attached = engine_->attach(Rank(0), 1);
  ASSERT_TRUE(attached) << attached.error().text();
  clients_[0] = std::make_unique<test::RingClient>(*attached->session);
  buffers_[0] = clients_[0]->buffer(*engine_, kCount * sizeof(float));
  clients_[0]->start(all_reduce(0, kAll), MUSTER_LANE_SMALL);
  pass(2 * small_.deadline + std::chrono::seconds(1));
  EXPECT_EQ(clients_[0]->latest(MUSTER_LANE_SMALL), Code::kTimeout);
  EXPECT_EQ(clients_[0]->quarantined(MUSTER_LANE_SMALL), 0u) << "its own start was never launched";
  unending_ = 0;
  factory_->let_go();
  turn();
  EXPECT_EQ(engine_->reclaim(), 0u);
}

// Goal:   steps that fail in any way, on several lanes and groups at once, leave an engine that works.
// Method: rounds of starts with faults from a seed. All members of a step get the same error, with its name;
//         a member with an error resets the lane. Afterwards every lane of every group works.
TEST_F(FailingStep, LeavesNothingBehindInRandomRounds) {
  constexpr std::array<muster_lane, 3> kLanes{MUSTER_LANE_SMALL, MUSTER_LANE_GATHER, MUSTER_LANE_ALLREDUCE};
  const std::uint64_t rounds = muster::test::property_cases(300);
  std::uint64_t failed = 0;
  const auto round = [&](bool faults) {
    for (const muster_lane lane : kLanes) start_all(lane);
    start_pair(MUSTER_LANE_HALO);
    turn();
    for (const muster_lane lane : kLanes) {
      const Code first = clients_[0]->latest(lane);
      ASSERT_NE(first, Code::kPending);
      for (auto& client : clients_) ASSERT_EQ(client->latest(lane), first);
      failed += first == Code::kOk ? 0 : 1;
      ASSERT_TRUE(faults || first == Code::kOk) << static_cast<int>(first);
      for (auto& client : clients_) {
        if (first == Code::kOk) break;
        ASSERT_EQ(client->failure(lane)->text.rfind("group dp_shard: all_reduce on lane ", 0), 0u)
            << client->failure(lane)->text;
      }
    }
    ASSERT_EQ(clients_[1]->latest(MUSTER_LANE_HALO), clients_[2]->latest(MUSTER_LANE_HALO));
    for (auto& client : clients_)
      for (const muster_lane lane : {kLanes[0], kLanes[1], kLanes[2], muster_lane{MUSTER_LANE_HALO}})
        if (client->latest(lane) != Code::kOk) client->reset(lane);
    turn();
  };
  for (const std::uint64_t seed : muster::test::fault_seeds(11)) {
    SCOPED_TRACE(seed);
    failed = 0;
    plan_ = transport::test::drawn_faults(seed, {.at_launch = 20, .late = 20, .delayed = 30, .lost = 0});
    for (std::uint64_t i = 0; i < rounds; ++i) ASSERT_NO_FATAL_FAILURE(round(true));
    EXPECT_GT(failed, rounds / 4);
    plan_ = [](const Collective&) { return Fault{}; };
    ASSERT_NO_FATAL_FAILURE(round(false));
    EXPECT_EQ(clients_[1]->latest(MUSTER_LANE_HALO), Code::kOk);
    EXPECT_TRUE(engine_->health().ok()) << engine_->health().text();
  }
}

}  // namespace
}  // namespace muster::engine
