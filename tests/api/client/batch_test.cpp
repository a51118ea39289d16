// Several starts as one.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/holdings.hpp"

#include <array>
#include <csignal>

#include <gmock/gmock.h>
#include <sys/wait.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

class Batch : public muster::test::RunningRanks {
 protected:
  static muster_batch_entry entry(muster_plan plan, muster_lane lane, muster_point wait = 0) {
    muster_batch_entry made{plan, MUSTER_SUBMIT_INIT, 0};
    made.submit.lane = lane;
    made.submit.wait_count = wait != 0 ? 1 : 0;
    made.submit.waits[0] = wait;
    return made;
  }
};

// Goal:   a chain over lanes, each entry after the one before.
TEST_F(Batch, StartsAChainOfEntriesThatWaitForEachOther) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 8));
    std::fill_n(v.data, 8, 1.0f);
    for (int round = 0; round < 20; ++round) {
      std::array entries{entry(plan, MUSTER_LANE_SMALL),
                         entry(plan, MUSTER_LANE_REDUCE, MUSTER_POINT_OF_ENTRY(0)),
                         entry(plan, MUSTER_LANE_GATHER, MUSTER_POINT_OF_ENTRY(1)),
                         entry(plan, MUSTER_LANE_SMALL, MUSTER_POINT_OF_ENTRY(2))};
      v.data[3] = 1.0f;
      ASSERT_EQ(muster_plan_start_batch(member.session, entries.data(), entries.size()), MUSTER_OK)
          << muster_last_error();
      ASSERT_EQ(muster_point_wait(member.session, entries.back().point, -1), MUSTER_OK)
          << muster_last_error();
      for (const auto& e : entries) EXPECT_EQ(muster_point_test(member.session, e.point), MUSTER_OK);
      EXPECT_EQ(v.data[3], 16.0f);
    }
  });
}

TEST_F(Batch, StartsAllOrNone) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 8));
    std::array entries{entry(plan, MUSTER_LANE_SMALL), entry(plan + 1, MUSTER_LANE_SMALL)};
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), 2), MUSTER_ERR_STALE);
    EXPECT_THAT(muster_last_error(), HasSubstr("entry 1: plan 0x"));
    entries[1] = entry(plan, MUSTER_LANE_SMALL, MUSTER_POINT_OF_ENTRY(1));
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), 2), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("entry 1: submit.waits[0] is of entry 1, which does not stand before it"));
    EXPECT_EQ(entries[0].point, MUSTER_POINT_NONE);
    entries[1] = entry(plan, 8);
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), 2), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("entry 1: submit.lane 8 does not exist"));
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), 0), MUSTER_OK);
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), MUSTER_BATCH_MAX + 1),
              MUSTER_ERR_BAD_ARGUMENT);
    // Not one of them was started: the lane's next point is its first.
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_SMALL;
    muster_point point = 0;
    ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK);
    EXPECT_EQ(point & 0xFFFF, 1u);
    EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
  });
}

// Goal:   a batch for which the lane has no room is refused as a whole.
TEST_F(Batch, IsRefusedWhereItsLaneIsFull) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 8));
    std::uint32_t timeline = 0;
    ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
    std::vector<muster_batch_entry> entries(
        200, entry(plan, MUSTER_LANE_SMALL, muster_timeline_point(timeline, 1)));
    int batches = 0;
    muster_status_t status = MUSTER_OK;
    muster_point last = 0;
    while (batches < 100) {
      status = muster_plan_start_batch(member.session, entries.data(), entries.size());
      if (status != MUSTER_OK) break;
      last = entries.back().point;
      ++batches;
    }
    EXPECT_EQ(status, MUSTER_ERR_BUSY);
    EXPECT_THAT(muster_last_error(), HasSubstr("entry 24: lane 2 has 1024 starts that are not finished"));
    EXPECT_EQ(batches, 5);  // of 200 in 1024
    ASSERT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_OK);
    EXPECT_EQ(muster_point_wait(member.session, last, -1), MUSTER_OK) << muster_last_error();
  });
}

// Goal:   where the engine takes nothing in, what has no place in the ring is refused, and goes well later.
// Method: the engine stands still, and the client signals until there is no room; then it tries a batch.
TEST_F(Batch, IsRefusedWhereTheRingIsFull) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 8));
    std::uint32_t timeline = 0;
    ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
    const auto engines = muster::test::engines();
    for (const pid_t engine : engines) {
      siginfo_t stopped{};
      ASSERT_EQ(kill(engine, SIGSTOP), 0);
      ASSERT_EQ(waitid(P_PID, static_cast<id_t>(engine), &stopped, WSTOPPED | WNOWAIT), 0);
    }
    std::uint64_t value = 0;
    muster_status_t status = MUSTER_OK;
    while (status == MUSTER_OK && value < 1'000'000)
      status = muster_timeline_signal(member.session, timeline, ++value);
    EXPECT_EQ(status, MUSTER_ERR_BUSY);
    EXPECT_THAT(muster_last_error(), HasSubstr("the session's command ring is full"));
    std::array entries{entry(plan, MUSTER_LANE_SMALL, muster_timeline_point(timeline, value))};
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), entries.size()), MUSTER_ERR_BUSY);
    EXPECT_THAT(muster_last_error(), HasSubstr("the session's command ring is full"));
    for (const pid_t engine : engines) ASSERT_EQ(kill(engine, SIGCONT), 0);
    await([&] {
      status = muster_plan_start_batch(member.session, entries.data(), entries.size());
      return status != MUSTER_ERR_BUSY;
    });
    ASSERT_EQ(status, MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_timeline_signal(member.session, timeline, value), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(member.session, entries[0].point, -1), MUSTER_OK) << muster_last_error();
  });
}

}  // namespace
