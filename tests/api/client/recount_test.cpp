// New counts between starts and runs of a plan.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <random>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

constexpr std::size_t kRoom = 4000;  // floats of each vector

class Recount : public muster::test::RunningRanks {
 protected:
  static muster_plan plan_of(Member& member, const muster_collective& c) {
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    return plan;
  }
  static muster_status_t recount(Member& member, muster_plan plan, std::uint64_t count,
                                 const std::vector<std::uint64_t>* source = nullptr,
                                 const std::vector<std::uint64_t>* target = nullptr) {
    const muster_blocks source_blocks{source != nullptr ? source->data() : nullptr, nullptr};
    const muster_blocks target_blocks{target != nullptr ? target->data() : nullptr, nullptr};
    const muster_status_t status =
        muster_plan_recount(member.session, plan, count, &source_blocks, &target_blocks);
    member.error = muster_last_error();
    return status;
  }
  static muster_status_t start(Member& member, muster_plan plan, muster_point* point) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COPY;
    return muster_plan_start(member.session, plan, &submit, point);
  }
};

// Goal:   a router's step: each rank sends each other another number of rows, every time.
// Method: all ranks draw the same table from one seed; run and started in turn.
TEST_F(Recount, SendsOtherCountsEachStep) {
  for (const int world : {2, 4}) {
    with_ranks(world, [&](Member& member) {
      const auto members = static_cast<std::size_t>(world);
      const auto me = static_cast<std::size_t>(member.rank);
      const Vector source = vector_of(member, kRoom);
      const Vector target = vector_of(member, kRoom);
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = MUSTER_ALL_TO_ALL;
      c.group = member.group;
      c.dtype = MUSTER_F32;
      c.source = {source.buffer, 0};
      c.target = {target.buffer, 0};
      const muster_plan plan = plan_of(member, c);
      std::minstd_rand random(7);
      for (int step = 0; step < 60; ++step) {
        std::vector<std::vector<std::uint64_t>> rows(members, std::vector<std::uint64_t>(members));
        for (auto& row : rows)
          for (auto& count : row) count = random() % 5 == 0 ? 0 : random() % (kRoom / members);
        std::vector<std::uint64_t> from(members);
        for (std::size_t i = 0; i < members; ++i) from[i] = rows[i][me];
        ASSERT_EQ(recount(member, plan, 0, &rows[me], &from), MUSTER_OK) << member.error;
        std::size_t at = 0;
        for (std::size_t to = 0; to < members; ++to)
          for (std::uint64_t k = 0; k < rows[me][to]; ++k)
            source.data[at++] = static_cast<float>(step * 100 + static_cast<int>(me * 10 + to));
        if (step % 2 == 0) {
          ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
        } else {
          muster_point point = 0;
          ASSERT_EQ(start(member, plan, &point), MUSTER_OK) << muster_last_error();
          ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
        }
        at = 0;
        for (std::size_t i = 0; i < members; ++i)
          for (std::uint64_t k = 0; k < from[i]; ++k)
            ASSERT_EQ(target.data[at++], static_cast<float>(step * 100 + static_cast<int>(i * 10 + me)))
                << "world " << world << ", step " << step << ", from " << i;
      }
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_OK) << muster_last_error();
    });
  }
}

// Goal:   starts in flight keep the counts they were started with.
TEST_F(Recount, LeavesStartsInFlightAlone) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    std::uint32_t timeline = 0;
    ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 1));
    std::fill_n(v.data, kRoom, 1.0f);
    muster_point last = 0;
    for (std::uint64_t count = 1; count <= 10; ++count) {
      ASSERT_EQ(recount(member, plan, count), MUSTER_OK) << member.error;
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_REDUCE;
      submit.wait_count = 1;
      submit.waits[0] = muster_timeline_point(timeline, 1);  // nothing goes before all are in flight
      ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &last), MUSTER_OK) << muster_last_error();
    }
    EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_OK);
    ASSERT_EQ(muster_point_wait(member.session, last, -1), MUSTER_OK) << muster_last_error();
    // Element i was in the starts of count i + 1 to 10, each of which doubled it.
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(v.data[i], i < 10 ? static_cast<float>(1 << (10 - i)) : 1.0f) << "element " << i;
    EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
  });
}

TEST_F(Recount, RefusesWhatDoesNotFitAndKeepsTheCounts) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 3));
    EXPECT_EQ(recount(member, plan, kRoom + 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(member.error, HasSubstr("4001 elements of 4 bytes end behind the 16000 bytes of its buffer"));
    EXPECT_EQ(recount(member, plan, UINT64_MAX), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(recount(member, plan + 1, 3), MUSTER_ERR_STALE);
    muster_collective barrier = MUSTER_COLLECTIVE_INIT;
    barrier.op = MUSTER_BARRIER;
    barrier.group = member.group;
    EXPECT_EQ(recount(member, plan_of(member, barrier), 3), MUSTER_ERR_UNSUPPORTED);
    std::fill_n(v.data, kRoom, 1.0f);
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(v.data[2], 2.0f);
    EXPECT_EQ(v.data[3], 1.0f);
  });
}

// Goal:   memory that a plan may reach with new counts stays as long as the plan, though it began with none.
TEST_F(Recount, HoldsTheMemoryOfAPlanThatBeganEmpty) {
  with_ranks(2, [&](Member& member) {
    const Vector source = vector_of(member, kRoom);
    const Vector target = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, source, target, 0));
    ASSERT_EQ(recount(member, plan, 5), MUSTER_OK) << member.error;
    std::fill_n(source.data, 5, 1.0f);
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(target.data[4], 2.0f);
    EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_ERR_BUSY);
    EXPECT_EQ(muster_buffer_free(member.session, target.buffer), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK);
    EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_buffer_free(member.session, target.buffer), MUSTER_OK) << muster_last_error();
  });
}

// Goal:   one result for all takes new counts too, run and started.
// Method: what lies behind the result is looked at, and each step begins where all have looked.
TEST_F(Recount, ReachesIntoAResultThatAllShare) {
  constexpr int kWorld = 3;
  with_ranks(kWorld, [&](Member& member) {
    const Vector source = vector_of(member, kRoom);
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kRoom * sizeof(float);
    options.name = "result";
    options.shared_by = member.group;
    Vector result;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_create(member.session, &options, &result.buffer, &address), MUSTER_OK)
        << muster_last_error();
    result.data = static_cast<float*>(address);
    muster_collective gather = all_reduce(member, source, result, 1);
    gather.op = MUSTER_ALL_GATHER;
    gather.redop = 0;
    const muster_plan reduces = plan_of(member, all_reduce(member, source, result, 1));
    const muster_plan gathers = plan_of(member, gather);
    std::minstd_rand random(3);
    for (int step = 0; step < 40; ++step) {
      std::vector<std::uint64_t> lengths(kWorld);
      for (std::uint64_t& length : lengths) length = random() % 4 == 0 ? 0 : random() % (kRoom / kWorld);
      const std::uint64_t all = lengths[0] + lengths[1] + lengths[2];
      const bool reducing = step % 4 < 2;
      const muster_plan plan = reducing ? reduces : gathers;
      if (member.rank == 0) std::fill_n(result.data, kRoom, -1.0f);
      std::fill_n(source.data, kRoom, static_cast<float>(step + member.rank));
      ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(reducing ? recount(member, plan, all) : recount(member, plan, 0, nullptr, &lengths),
                MUSTER_OK)
          << member.error;
      if (step % 2 == 0) {
        ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
      } else {
        muster_point point = 0;
        ASSERT_EQ(start(member, plan, &point), MUSTER_OK) << muster_last_error();
        ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
      }
      for (std::uint64_t i = 0; i < kRoom; ++i) {
        const int giver = i < lengths[0] ? 0 : i < lengths[0] + lengths[1] ? 1 : 2;
        const int expected = i >= all ? -1 : reducing ? 3 * step + 3 : step + giver;
        ASSERT_EQ(result.data[i], static_cast<float>(expected)) << "step " << step << ", element " << i;
      }
      ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   a member that forgot to change its counts is found, though the engine knows of neither's.
TEST_F(Recount, IsComparedAsEver) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 3));
    const muster_plan other = plan_of(member, all_reduce(member, v, v, 5));
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(recount(member, other, 6), MUSTER_OK);
      ASSERT_EQ(recount(member, plan, member.rank == 0 ? 700 : 3), MUSTER_OK) << member.error;
      EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), HasSubstr("count: 700 at rank 0 and 3 at rank 1"));
    }
    ASSERT_EQ(recount(member, plan, 4), MUSTER_OK);
    EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
  });
}

}  // namespace
