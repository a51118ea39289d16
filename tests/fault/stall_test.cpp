// An engine that does not go on is ended by its own watchdog, and its clients hear that it is lost; one that
// was only stopped is not. T-18.
#include "daemon/engine/job/watchdog.hpp"

#include "tests/fault/captured_errors.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/node.hpp"

#include <csignal>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using engine::StallJudge;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Steady = std::chrono::steady_clock;

class Stall : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("MUSTER_FAULT_AT"); }
  // A rank alone with a plan of its own.
  void attach(const test::Node& node) {
    const muster_open_options options = node.rank("job", 0, 1);
    ASSERT_EQ(muster_open(&options, &session_), MUSTER_OK) << muster_last_error();
    sum_.emplace(session_, 64, MUSTER_GROUP_SELF);
  }
  muster_status_t start_and_wait() { return sum_->start_and_wait(MUSTER_LANE_ALLREDUCE, 60'000'000'000); }

  const test::CapturedErrors errors_;
  muster_session* session_ = nullptr;
  std::optional<test::AllReduce> sum_;
};

// Goal:   clients of an engine that hangs hear that it is lost, after five seconds and not before.
TEST_F(Stall, EndsTheEngineAndTellsWhereItWas) {
  setenv("MUSTER_FAULT_AT", "engine.drained:1=stall", 1);
  test::Node node;
  node.options.engine_program = MUSTER_FAULT_ENGINE_PROGRAM;
  node.start();
  attach(node);
  const auto begin = Steady::now();
  EXPECT_EQ(start_and_wait(), MUSTER_ERR_DAEMON_LOST) << muster_last_error();
  EXPECT_GE(Steady::now() - begin, StallJudge::kEndAfter);
  EXPECT_THAT(errors_.text(),
              AllOf(HasSubstr("draining the rings for 1.0 s and holds all others up\n"),
                    HasSubstr("draining the rings for 5.0 s and holds all others up; the engine ends\n"),
                    HasSubstr("\nmuster-engine(")));
  EXPECT_EQ(muster_close(session_), MUSTER_OK);
}

// Goal:   an engine that was stopped for longer than a stall may last goes on as if nothing had been.
TEST_F(Stall, IsNotWhatAStoppedEngineHas) {
  test::Node node;
  node.start();
  attach(node);
  EXPECT_EQ(start_and_wait(), MUSTER_OK);
  const auto engines = test::engines();
  ASSERT_EQ(engines.size(), 1u);
  for (int i = 0; i < 3; ++i) {
    kill(engines[0], SIGSTOP);
    usleep(100'000);  // until each of its threads has stopped
    muster_point point = 0;
    ASSERT_EQ(sum_->start(MUSTER_LANE_ALLREDUCE, &point), MUSTER_OK);
    EXPECT_EQ(muster_point_wait(session_, point, i == 0 ? 6'000'000'000 : 1'500'000'000),
              MUSTER_ERR_WAIT_TIMEOUT);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("the job's engine has not moved for"),
                      HasSubstr("see `muster hang --endpoint " + node.endpoint() + " --job job`")));
    kill(engines[0], SIGCONT);
    EXPECT_EQ(muster_point_wait(session_, point, -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(start_and_wait(), MUSTER_OK) << muster_last_error();
  }
  EXPECT_EQ(test::engines(), engines);
  EXPECT_THAT(errors_.text(), Not(HasSubstr("holds all others up")));
  EXPECT_EQ(muster_close(session_), MUSTER_OK);
}

}  // namespace
}  // namespace muster
