// LaneQueue: what fails before a reset, and what after it.
#include "scheduler/run/lane_queue.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <memory>
#include <optional>

#include <gtest/gtest.h>

namespace muster::scheduler::test {
namespace {

class LaneQueueTest : public ::testing::Test {
 protected:
  void launch(std::uint64_t value, bool on_streams = false, std::uint32_t step = 0) {
    LaneQueue::Start start;
    start.on_streams = on_streams;
    start.request.value = value;
    start.request.plan = &plan_;
    queue_.skip();
    queue_.push(start, Instant(1));
    queue_.launch_next(step, true);
  }
  static CausePtr cause(const char* text) {
    return std::make_shared<const Cause>(Cause{Code::kInternal, -1, text, 1});
  }

  Plan plan_{KernelWork{&kNothing, {}}, SessionId(), 0, 0, {}};
  LaneQueue queue_{4};
};

// Goal:   a lane that was reset is not stopped again by what still ran then.
TEST_F(LaneQueueTest, StaysResetWhateverRanBefore) {
  launch(1);
  launch(2);
  EXPECT_EQ(queue_.failures().stop_at(1, cause("first")), 1u);
  queue_.finish(1, false);
  EXPECT_EQ(queue_.resume(), 2u);
  EXPECT_EQ(queue_.failures().stop_at(2, cause("second")), std::nullopt);
  queue_.finish(2, false);
  EXPECT_FALSE(queue_.failures().stopped());
  EXPECT_NE(queue_.failures().at(2), nullptr);
  launch(3);
  EXPECT_EQ(queue_.failures().at(3), nullptr) << "it is new";
  queue_.finish(3, true);
  EXPECT_EQ(queue_.reached(), 3u);
}

TEST_F(LaneQueueTest, KnowsWhatIsLaunchedBesideWhatIsReached) {
  launch(1, true, 7);
  EXPECT_EQ(queue_.launched(), 1u);
  EXPECT_EQ(queue_.reached(), 0u);
  ASSERT_NE(queue_.in_flight(1), nullptr);
  EXPECT_EQ(queue_.in_flight(1)->step, 7u);
  EXPECT_EQ(queue_.in_flight(2), nullptr);
  launch(2);
  EXPECT_EQ(queue_.launched(), 1u) << "the second goes on outside the streams";
  queue_.finish(1, true);
  EXPECT_EQ(queue_.in_flight(1), nullptr);
}

TEST_F(LaneQueueTest, StopsAgainAtWhatBeganAfterAReset) {
  launch(1);
  queue_.failures().stop_at(1, cause("first"));
  queue_.finish(1, false);
  queue_.resume();
  launch(2);
  EXPECT_EQ(queue_.failures().stop_at(2, cause("second")), 2u);
  EXPECT_TRUE(queue_.failures().stopped());
  ASSERT_NE(queue_.failures().at(1), nullptr);
  EXPECT_EQ(queue_.failures().at(1)->text, "first");
  EXPECT_EQ(queue_.failures().at(2)->text, "second");
}

}  // namespace
}  // namespace muster::scheduler::test
