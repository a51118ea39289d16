#include "daemon/engine/job/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/manual_clock.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using ::testing::HasSubstr;

// An engine of three ranks that moves when the test says.
class EngineByHand : public ::testing::Test {
 protected:
  void SetUp() override {
    control::JobSpec spec = test::small_job(3);
    spec.starts_per_lane_max = 2;
    spec.endpoint = "/tmp/other";
    auto engine = Engine::create(spec, clock_, nullptr, Engine::Pooling::kByHand);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      auto attached = engine_->attach(Rank(rank), 1);
      ASSERT_TRUE(attached) << attached.error().text();
      sessions_.push_back(attached->session);
      segments_.push_back(*shm::Mapping::map(shm::Descriptor(dup(attached->direct_segment)),
                                             attached->welcome.direct_bytes,
                                             shm::Mapping::Access::kReadWrite));
    }
  }
  // The rank's status for the end of an epoch of the group of all.
  Status told(std::uint32_t rank, std::uint64_t epoch) {
    shm::DirectMessage message;
    message.group = kAll;
    message.epoch = epoch;
    std::string text;
    const auto end = engine_->direct().end(*sessions_[rank], message, &text);
    return end ? Status(static_cast<Code>(end->code), text, end->culprit) : end.error();
  }
  // The rank runs an operation directly, as far as the engine can see.
  void run_directly(std::uint32_t rank) {
    auto* header = reinterpret_cast<shm::DirectHeader*>(segments_[rank].writable());
    std::atomic_ref(header->recorded).fetch_add(1);
  }
  void turn() {
    while (engine_->run_once() > 0) {
    }
  }

  static constexpr std::uint64_t kAll = Handle(0, 77).bits;
  muster::test::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<Session*> sessions_;
  std::vector<shm::Mapping> segments_;
};

TEST_F(EngineByHand, PassesOnWhatARankThatLeavesAtOnceHadHeard) {
  engine_->detach(Rank(2), "rank 2 died");
  EXPECT_THAT(told(1, 1).message(), HasSubstr("rank 2 died"));
  engine_->detach(Rank(1), "rank 1 detached");
  EXPECT_THAT(told(0, 2).message(), HasSubstr("rank 2 died"));
}

// Goal:   a rank that has gone on since it heard of a death leaves for a reason of its own, also if it went
//         on in another group, as survivors do.
TEST_F(EngineByHand, BlamesADeathOnNobodyWhoWasGotOverLongAgo) {
  engine_->detach(Rank(2), "rank 2 died");
  EXPECT_THAT(told(1, 1).message(), HasSubstr("rank 2 died"));
  run_directly(1);
  engine_->detach(Rank(1), "rank 1 crashed");
  EXPECT_THAT(told(0, 2).message(), HasSubstr("rank 1 crashed"));
}

// Goal:   a launcher that says again that a rank is absent, as its answer was lost, ends nothing more.
// Method: one end for the departure, one for the absence; once all may come again nothing stands against the
//         third epoch.
TEST_F(EngineByHand, EndsOneEpochForAnAbsenceSaidTwice) {
  engine_->detach(Rank(2), "rank 2 detached");
  for (int i = 0; i < 2; ++i) engine_->faults().absent(Rank(2), "rank 2 exited with code 0");
  EXPECT_THAT(told(0, 1).message(), HasSubstr("rank 2 detached"));
  EXPECT_EQ(told(0, 2).code(), Code::kPeerLost);
  EXPECT_EQ(told(0, 3).code(), Code::kPeerLost) << "it stands against the group";
  engine_->faults().expect_all();
  EXPECT_EQ(told(0, 3).code(), Code::kState) << "that epoch goes on";
}

TEST_F(EngineByHand, SaysWhereTheEndOfItsJobIsSeen) {
  engine_->close(Code::kJobEnded, "the test ends it");
  EXPECT_EQ(engine_->attach(Rank(0), 1).error().message(),
            "job job is ending; try again once it is gone (`muster jobs --endpoint /tmp/other`)");
}

// Goal:   a client whose lane is full and never moves does not keep the workers from sleeping.
TEST_F(EngineByHand, SleepsWhileAClientWaitsForRoomOnItsLane) {
  shm::PlanCollective barrier;
  barrier.op = MUSTER_BARRIER;
  barrier.group = kAll;
  const auto plan = engine_->plans().collective(*sessions_[0], barrier, {});
  ASSERT_TRUE(plan) << plan.error().text();
  auto view =
      shm::SubmissionView::attach(shm::Descriptor(dup(sessions_[0]->submission().descriptor().get())));
  auto page = shm::CompletionView::attach(shm::Descriptor(dup(sessions_[0]->page().descriptor().get())));
  ASSERT_TRUE(view && page);
  auto ring = shm::ring_writer(*view, *page);
  shm::Command start;
  start.kind = shm::Command::Kind::kStart;
  start.lane = MUSTER_LANE_SMALL;
  start.plan = plan->bits;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(ring.push(start), Code::kOk);
  turn();
  ASSERT_TRUE(sessions_[0]->intake().has_backlog());
  EXPECT_TRUE(engine_->arm());
  // An abort makes room; the next turn finds it.
  EXPECT_TRUE(engine_->faults().abort(*sessions_[1], kAll, "").ok());
  turn();
  EXPECT_FALSE(sessions_[0]->intake().has_backlog());
}

// Goal:   T-06. A client that abuses its doorbell never makes anybody hold the engine's lock for long.
// Method: a bell that would block its reader, rung and emptied without end for a second beside workers of
//         the engine's own; the lock is looked at all the while. A hold is as long as the same number is
//         seen, so one that was not seen to end counts for less than it was: the look is short.
class EngineLockHolds : public test::EngineTest {
 protected:
  static constexpr double kPromisedMs = 50;

  Nanos longest_while(const std::atomic<bool>& stopping) const {
    Nanos longest{0};
    std::uint64_t seen = 0;
    Instant since = clock_.now();
    while (!stopping) {
      const std::uint64_t holds = engine_->lock().sight().holds;
      const Instant now = clock_.now();
      if (holds != seen) seen = holds, since = now;
      if (holds % 2 == 1) longest = std::max<Nanos>(longest, now - since);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return longest;
  }
};

TEST_F(EngineLockHolds, AreShortBesideADoorbellThatIsAbused) {
  auto attached = engine_->attach(Rank(0), 1);
  ASSERT_TRUE(attached) << attached.error().text();
  const int bell = attached->doorbell.get();
  ASSERT_EQ(fcntl(bell, F_SETFL, 0), 0) << "a read would block from now on, everybody's";
  std::atomic<bool> stopping{false};
  std::thread ringer([&] {
    while (!stopping) {
      static_cast<void>(eventfd_write(bell, 1));
      std::uint64_t stolen = 0;
      [[maybe_unused]] const auto got = read(bell, &stolen, sizeof stolen);
    }
  });
  Nanos longest{0};
  std::thread watcher([&] { longest = longest_while(stopping); });
  const std::uint64_t before = engine_->lock().sight().holds;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  stopping = true;
  ringer.join();
  watcher.join();
  EXPECT_GT(engine_->lock().sight().holds, before) << "nobody took the lock: this test is blind";
  const double ms = static_cast<double>(longest.count()) / 1e6;
  std::printf("the longest hold of the engine's lock: %.2f ms\n", ms);
  muster::test::expect_promised(ms, kPromisedMs,
                                "ms that the engine's lock is held beside an abused doorbell");
}

}  // namespace
}  // namespace muster::engine
