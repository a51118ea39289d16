// Lanes that programs make: by a real node's ranks.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

muster_submit on(muster_lane lane) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  return submit;
}

class Lanes : public muster::test::RunningRanks {
 protected:
  static muster_lane lane_of(const Member& member, muster_lane lane_class, const char* name) {
    muster_lane lane = MUSTER_LANE_NONE;
    EXPECT_EQ(muster_lane_create(member.session, lane_class, name, &lane), MUSTER_OK) << muster_last_error();
    return lane;
  }
  static muster_point start(const Member& member, muster_group group, muster_lane lane, const Vector& v) {
    muster_collective c = all_reduce(member, v, v, 1);
    c.group = group;
    const muster_submit submit = on(lane);
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_collect(member.session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    return point;
  }
  static muster_group made(const Member& member, const char* name) {
    const int32_t ranks[] = {0, 1};
    muster_group group = 0;
    EXPECT_EQ(muster_group_make(member.session, ranks, std::size(ranks), name, &group), MUSTER_OK)
        << muster_last_error();
    return group;
  }
};

// Goal:   two ranks use two groups in opposite order, each group on a lane of its own.
// Method: each waits for its first group before it starts on the second, so on one lane they would wait for
//         each other until the deadline.
TEST_F(Lanes, KeepTwoGroupsOutOfEachOthersOrder) {
  with_ranks(2, [&](Member& member) {
    const muster_group groups[] = {made(member, "a"), made(member, "b")};
    const muster_lane lanes[] = {lane_of(member, MUSTER_LANE_ALLREDUCE, "a"),
                                 lane_of(member, MUSTER_LANE_ALLREDUCE, "b")};
    const Vector v[] = {vector_of(member, 1), vector_of(member, 1)};
    for (int round = 0; round < 20; ++round) {
      v[0].data[0] = v[1].data[0] = static_cast<float>(member.rank + 1);
      const int first = member.rank;
      muster_point points[2];
      points[first] = start(member, groups[first], lanes[first], v[first]);
      points[1 - first] = start(member, groups[1 - first], lanes[1 - first], v[1 - first]);
      for (const muster_point point : points)
        ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(v[0].data[0], 3);
      EXPECT_EQ(v[1].data[0], 3);
    }
  });
}

TEST_F(Lanes, AreAsManyAsTheLimitAndEachWorks) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 1);
    std::vector<muster_lane> lanes;
    for (int i = MUSTER_LANE_CLASSES; i < MUSTER_LANES_MAX; ++i)  // each rank in an order of its own
      lanes.push_back(lane_of(member, MUSTER_LANE_COPY,
                              std::to_string(member.rank == 0 ? i : MUSTER_LANES_MAX - i).c_str()));
    muster_lane more = 0;
    EXPECT_EQ(muster_lane_create(member.session, MUSTER_LANE_COPY, "more", &more), MUSTER_ERR_NO_RESOURCE);
    EXPECT_THAT(muster_last_error(), HasSubstr("64 lanes"));
    EXPECT_EQ(muster_lane_destroy(member.session, lanes.back()), MUSTER_OK) << muster_last_error();
    lanes.back() = lane_of(member, MUSTER_LANE_COPY, "more");
    v.data[0] = 1;
    const muster_point point = start(member, member.group, lanes.back(), v);
    EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(v.data[0], 2);
  });
}

TEST_F(Lanes, RefuseWhatCannotBe) {
  with_ranks(1, [&](Member& member) {
    muster_session* const s = member.session;
    muster_lane lane = 0;
    const Vector v = vector_of(member, 1);
    EXPECT_EQ(muster_lane_create(s, MUSTER_LANE_CLASSES, "x", &lane), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("lane class 7"));
    EXPECT_EQ(muster_lane_create(s, 0, "a\nb", &lane), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_lane_create(s, 0, std::string(64, 'x').c_str(), &lane), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_lane_create(s, 0, "x", nullptr), MUSTER_ERR_BAD_ARGUMENT);
    const muster_lane made = lane_of(member, MUSTER_LANE_HALO, "x");
    EXPECT_EQ(muster_lane_create(s, MUSTER_LANE_HALO, "x", &lane), MUSTER_ERR_DUPLICATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("halo/x"));
    EXPECT_EQ(muster_lane_destroy(s, MUSTER_LANE_HALO), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_lane_destroy(s, 63), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_lane_destroy(s, MUSTER_LANE_NONE), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_lane_destroy(s, made), MUSTER_OK) << muster_last_error();

    const muster_collective c = all_reduce(member, v, v, 1);
    muster_failure failure = MUSTER_FAILURE_INIT;
    muster_point point = 0;
    for (const muster_lane gone : {made, muster_lane{63}, muster_lane{64}}) {
      const muster_submit submit = on(gone);
      EXPECT_EQ(muster_collect(s, &c, &submit, &point), MUSTER_ERR_BAD_ARGUMENT) << gone;
      EXPECT_THAT(muster_last_error(), HasSubstr("does not exist"));
      EXPECT_EQ(muster_lane_reset(s, gone), MUSTER_ERR_BAD_ARGUMENT) << gone;
      EXPECT_EQ(muster_lane_failure(s, gone, &failure), MUSTER_ERR_BAD_ARGUMENT) << gone;
    }
    const muster_submit unnamed = on(lane_of(member, MUSTER_LANE_COPY, nullptr));
    EXPECT_EQ(muster_collect(s, &c, &unnamed, &point), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("kernels only"));
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(s, &c, &plan), MUSTER_OK);
    muster_batch_entry entry = {plan, unnamed, 0};
    EXPECT_EQ(muster_plan_start_batch(s, &entry, 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("kernels only"));
  });
}

// Goal:   a lane that has failed can be given up, its points keep their outcome, and one that is made again
//         goes on.
TEST_F(Lanes, CanBeGivenUpAfterTheirFailure) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 1);
    muster_lane lane = lane_of(member, MUSTER_LANE_REDUCE, "x");
    muster_point failed = MUSTER_POINT_NONE;
    if (member.rank == 0) failed = start(member, member.group, lane, v);
    if (member.rank == 0) {
      EXPECT_EQ(muster_lane_destroy(member.session, lane), MUSTER_ERR_BUSY);
      EXPECT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
      EXPECT_EQ(muster_point_wait(member.session, failed, -1), MUSTER_ERR_ABORTED);
      EXPECT_EQ(muster_lane_destroy(member.session, lane), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_point_test(member.session, failed), MUSTER_ERR_ABORTED);
      lane = lane_of(member, MUSTER_LANE_REDUCE, "x");
    }
    await_all(member);
    v.data[0] = 1;
    muster_point point = start(member, member.group, lane, v);
    muster_status_t status = muster_point_wait(member.session, point, -1);
    if (member.rank == 1 && status == MUSTER_ERR_ABORTED) {  // it had not heard of the abort yet
      ASSERT_EQ(muster_lane_reset(member.session, lane), MUSTER_OK);
      point = start(member, member.group, lane, v);
      status = muster_point_wait(member.session, point, -1);
    }
    EXPECT_EQ(status, MUSTER_OK) << muster_last_error();
    EXPECT_EQ(v.data[0], 2);
    EXPECT_EQ(muster_point_test(member.session, failed), member.rank == 0 ? MUSTER_ERR_ABORTED : MUSTER_OK);
  });
}

TEST_F(Lanes, AreNamedInATrace) {
  const muster::test::Folder folder;
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 1);
    ASSERT_EQ(muster_trace_begin(member.session), MUSTER_OK);
    const muster_point point =
        start(member, member.group, lane_of(member, MUSTER_LANE_GATHER, "evaluation"), v);
    ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
    ASSERT_EQ(muster_trace_end(member.session, (folder.path() + "/trace").c_str()), MUSTER_OK);
  });
  std::ifstream file(folder.path() + "/trace");
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(json, HasSubstr(R"("lane":"gather/evaluation")"));
}

// Goal:   a lane that its rank left behind is there for the rank's next session.
TEST_F(Lanes, CloseWithTheirSession) {
  for (int life = 0; life < 3; ++life)
    with_ranks(2, [&](Member& member) {
      const Vector v = vector_of(member, 1);
      v.data[0] = 1;
      for (int i = MUSTER_LANE_CLASSES; i < MUSTER_LANES_MAX; ++i) {
        const muster_lane lane = lane_of(member, MUSTER_LANE_COPY, std::to_string(i).c_str());
        if (i != 20) continue;
        const muster_point point = start(member, member.group, lane, v);
        EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
      }
      meet_and_leave(member);
    });
}

}  // namespace
