#include "daemon/supervisor/program/drain.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;

TEST(DrainTimes, EndEnginesTooBeforeTheTimeIsOver) {
  for (const Nanos timeout : {Nanos(10s), Nanos(60s), Nanos(1h)}) {
    const Drain::Times times = Drain::times_of(timeout);
    EXPECT_EQ(times.latest(), timeout);
    EXPECT_GE(times.for_ranks, timeout / 10 * 9) << "most of it is the ranks'";
    EXPECT_GE(times.for_engines, Drain::kEnginesMin);
  }
}

TEST(DrainTimes, LeaveEnginesTheirLeastWhereThereIsLittle) {
  for (const Nanos timeout : {Nanos(0), Nanos(100ms), Nanos(2s)}) {
    const Drain::Times times = Drain::times_of(timeout);
    EXPECT_GE(times.for_ranks, timeout / 10 * 9);
    EXPECT_LE(times.for_ranks, timeout);
    EXPECT_EQ(times.for_engines, Drain::kEnginesMin);
  }
}

// The surroundings of a drain, without a job.
class DrainTest : public ::testing::Test {
 protected:
  DrainTest() {
    const auto nothing = [](auto&&...) {};
    jobs_ = std::make_unique<RunningJobs>(
        loop_, table_, memory_, store_, costs_, options_,
        RunningJobs::Events{nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing,
                            nothing, nothing, [](const std::string&) { return Status(); }});
    drain_ = std::make_unique<Drain>(loop_, table_, *jobs_, 10s,
                                     Drain::Events{[this] { ++begun_; }, [this] { ++ended_; }});
  }

  const Options options_;
  control::Loop loop_;
  JobTable table_{Shares(Shares::limits_of(4, 4), geteuid())};
  DescriptorStore store_{{}, 0};
  JobMemory memory_{loop_, store_, Shares::limits_of(1000, 0), geteuid()};
  control::NodeCostBook costs_{NodeCosts(), ""};
  std::unique_ptr<RunningJobs> jobs_;
  std::unique_ptr<Drain> drain_;
  int begun_ = 0;
  int ended_ = 0;
};

TEST_F(DrainTest, IsOverAtOnceWhereThereIsNoJob) {
  drain_->check();
  EXPECT_EQ(ended_, 0) << "it has not begun";
  drain_->begin(Drain::Ranks::kMayLeave);
  EXPECT_EQ(begun_, 1);
  EXPECT_GE(ended_, 1);
  EXPECT_TRUE(jobs_->closed());
  drain_->begin(Drain::Ranks::kMustLeave);
  EXPECT_EQ(begun_, 1) << "once";
}

TEST_F(DrainTest, LetsNoFurtherJobBegin) {
  drain_->begin(Drain::Ranks::kMayLeave);
  const Status refused = jobs_->start({}, {}, [](const Status&) {});
  EXPECT_EQ(refused.code(), Code::kState);
}

}  // namespace
}  // namespace muster::supervisor
