// SEND and RECV with tags, and the faces of an EXCHANGE, by a real node's ranks.
#include <muster/muster.h>

#include "tests/api/client/session_fixture.hpp"

#include <muster/kernels.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::group_of;
using muster::test::on;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Tags : public muster::test::Session {
 protected:
  void SetUp() override {
    Session::SetUp();
    if (IsSkipped()) return;
    for (muster_session* session : open_all(2)) {
      sessions_.push_back(session);
      vectors_.push_back(vector_of(session, 8));
      for (int i = 0; i < 8; ++i)
        vectors_.back().data[i] = static_cast<float>(100 * (sessions_.size() - 1) + i);
    }
  }
  // Rank 0 sends element `tag`, rank 1 receives it in its own element of that number.
  muster_collective message(int rank, std::uint32_t tag) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = rank == 0 ? MUSTER_SEND : MUSTER_RECV;
    c.group = group_of(sessions_[rank], "world");
    c.dtype = MUSTER_F32;
    c.peer = 1 - rank;
    c.tag = tag;
    c.count = 1;
    (rank == 0 ? c.source : c.target) = {vectors_[rank].buffer, tag * sizeof(float)};
    return c;
  }
  muster_point start(int rank, std::uint32_t tag, muster_lane lane, std::int64_t deadline_ms = 0) {
    const muster_collective c = message(rank, tag);
    muster_submit submit = on(lane);
    submit.deadline_ns = deadline_ms * 1'000'000;
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_collect(sessions_[rank], &c, &submit, &point), MUSTER_OK) << muster_last_error();
    return point;
  }
  void expect_reached(int rank, muster_point point) {
    EXPECT_EQ(muster_point_wait(sessions_[rank], point, -1), MUSTER_OK) << muster_last_error();
  }

  std::vector<muster_session*> sessions_;
  std::vector<Vector> vectors_;
};

// Goal:   messages that stand in crossed order in their lanes are told as what they are, at both ranks: tags,
//         where the other end stands, and what to do. Neither end is called missing.
TEST_F(Tags, SayWhereTheOtherEndStandsInItsLane) {
  std::vector<muster_point> points;
  for (const std::uint32_t tag : {1u, 2u}) points.push_back(start(0, tag, MUSTER_LANE_COPY, 300));
  for (const std::uint32_t tag : {2u, 1u}) points.push_back(start(1, tag, MUSTER_LANE_HALO, 300));
  const struct {
    int rank;
    std::size_t point;
    const char* said;
  } cases[] = {{0, 0, "send of tag 1 on lane copy passed its deadline of 0.3 s"},
               {1, 2, "recv of tag 2 on lane halo passed its deadline of 0.3 s"}};
  std::string all;
  for (const auto& each : cases) {
    EXPECT_NE(muster_point_wait(sessions_[each.rank], points[each.point], -1), MUSTER_OK);
    all = muster_last_error();
    EXPECT_THAT(all, AnyOf(HasSubstr(cases[0].said), HasSubstr(cases[1].said)));
    EXPECT_THAT(all, AnyOf(HasSubstr("rank 1 has its recv at position 2 of lane halo"),
                           HasSubstr("rank 0 has its send at position 2 of lane copy")));
    EXPECT_THAT(all, HasSubstr("send of tag 1, lane copy"));
    EXPECT_THAT(all, HasSubstr("recv of tag 2, lane halo"));
    EXPECT_THAT(all, HasSubstr("start them in one order at all ranks, or each on a lane of its own"));
    EXPECT_THAT(all, ::testing::Not(HasSubstr("missing")));
  }
}

// Goal:   one operation on two lanes: the program's own error names the lane at each rank, also where the
//         ranks get unequal amounts.
TEST_F(Tags, NameTheLanesOfOneOperation) {
  const muster_lane lanes[] = {MUSTER_LANE_SMALL, MUSTER_LANE_ALLREDUCE};
  const std::uint64_t uneven[] = {1, 3};
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE, MUSTER_BARRIER}) {
    std::vector<muster_point> points(2);
    for (int rank : {0, 1}) {
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = op;
      c.group = group_of(sessions_[rank], "world");
      if (op != MUSTER_BARRIER) {
        c.dtype = MUSTER_F32;
        c.redop = MUSTER_SUM;
        c.source = {vectors_[rank].buffer, 0};
        c.target = {vectors_[rank].buffer, 16};
      }
      if (op == MUSTER_REDUCE_SCATTER)
        c.source_blocks.counts = uneven;
      else if (op != MUSTER_BARRIER)
        c.count = 4;
      muster_submit submit = on(lanes[rank]);
      submit.deadline_ns = 300'000'000;
      EXPECT_EQ(muster_collect(sessions_[rank], &c, &submit, &points[rank]), MUSTER_OK)
          << muster_last_error();
    }
    for (int rank : {0, 1}) {
      EXPECT_NE(muster_point_wait(sessions_[rank], points[rank], -1), MUSTER_OK);
      EXPECT_THAT(
          muster_last_error(),
          HasSubstr("one operation is on several lanes: lane small at rank 0, lane allreduce at rank 1"));
      EXPECT_EQ(muster_lane_reset(sessions_[rank], lanes[rank]), MUSTER_OK) << muster_last_error();
    }
  }
}

// Goal:   receives that are posted early wait for their own messages, and hold up no others.
TEST_F(Tags, MatchInAnyOrderAcrossLanes) {
  const muster_point first = start(1, 1, MUSTER_LANE_COPY);
  const muster_point third = start(1, 3, MUSTER_LANE_HALO);
  const muster_point second = start(1, 2, MUSTER_LANE_SMALL);
  expect_reached(0, start(0, 3, MUSTER_LANE_COPY));
  expect_reached(1, third);
  EXPECT_EQ(muster_point_test(sessions_[1], first), MUSTER_PENDING);
  expect_reached(0, start(0, 2, MUSTER_LANE_COPY));
  expect_reached(0, start(0, 1, MUSTER_LANE_COPY));
  expect_reached(1, first);
  expect_reached(1, second);
  const std::vector<float> got(vectors_[1].data, vectors_[1].data + 5);
  EXPECT_THAT(got, ElementsAre(100.0f, 1.0f, 2.0f, 3.0f, 104.0f));
}

// Goal:   members that give operations, alike in all else, different tags hear of it; nothing moves.
TEST_F(Tags, TellAlikeOperationsApart) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER}) {
    std::vector<muster_point> points(2, MUSTER_POINT_NONE);
    for (const bool differ : {true, false}) {
      for (int rank = 0; rank < 2; ++rank) {
        muster_collective c = MUSTER_COLLECTIVE_INIT;
        c.op = op;
        c.group = group_of(sessions_[rank], "world");
        c.dtype = MUSTER_F32;
        c.redop = op == MUSTER_ALL_REDUCE ? MUSTER_SUM : 0;
        c.tag = 7 + static_cast<std::uint32_t>(differ ? rank : 0);
        c.count = 2;
        c.source = {vectors_[rank].buffer, 0};
        c.target = {vectors_[rank].buffer, 16};
        const muster_submit submit = on(MUSTER_LANE_GATHER);
        EXPECT_EQ(muster_collect(sessions_[rank], &c, &submit, &points[rank]), MUSTER_OK);
      }
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(muster_point_wait(sessions_[rank], points[rank], -1),
                  differ ? MUSTER_ERR_MISMATCH : MUSTER_OK);
        if (!differ) continue;
        EXPECT_THAT(muster_last_error(), AnyOf(HasSubstr("tag: 7 at rank 0 and 8 at rank 1"),
                                               HasSubstr("tag: 7 on node "), HasSubstr("tag: 8 on node ")));
        EXPECT_EQ(vectors_[rank].data[4], 100 * rank + 4) << "nothing has moved";
        EXPECT_EQ(muster_lane_reset(sessions_[rank], MUSTER_LANE_GATHER), MUSTER_OK) << muster_last_error();
      }
    }
    for (int i = 4; i < 8; ++i)
      for (int rank = 0; rank < 2; ++rank) vectors_[rank].data[i] = static_cast<float>(100 * rank + i);
  }
}

TEST_F(Tags, AreOfOperationsThatMoveData) {
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = group_of(sessions_[0], "world");
  barrier.tag = 4;
  muster_plan plan = 0;
  EXPECT_EQ(muster_plan_collective(sessions_[0], &barrier, &plan), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("tag 4 is given but barrier has none; leave it 0"));
}

// Goal:   one exchange moves faces of several dtypes; an edge whose ends differ in dtype is named.
TEST_F(Tags, OfAnExchangeHaveDtypesOfTheirOwn) {
  struct Faces {
    std::vector<muster_face> sends, receives;
  };
  std::vector<Faces> faces(2);
  const auto said = [&](int rank, muster_dtype small) {
    const muster_buffer buffer = vectors_[rank].buffer;
    faces[rank].sends = {{1 - rank, 0, muster_view1(buffer, 0, MUSTER_F32, 2)},
                         {1 - rank, 1, muster_view1(buffer, 8, small, 3)}};
    faces[rank].receives = {{1 - rank, 1, muster_view1(buffer, 16, MUSTER_U8, 3)},
                            {1 - rank, 0, muster_view1(buffer, 20, MUSTER_F32, 2)}};
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = MUSTER_EXCHANGE;
    c.group = group_of(sessions_[rank], "world");
    c.sends = faces[rank].sends.data();
    c.receives = faces[rank].receives.data();
    c.send_count = c.receive_count = 2;
    return c;
  };
  const auto start = [&](muster_dtype small) {
    std::vector<muster_status_t> status;
    std::vector<muster_point> points(2);
    const muster_submit submit = on(MUSTER_LANE_HALO);
    for (int rank : {0, 1}) {
      const muster_collective c = said(rank, small);
      EXPECT_EQ(muster_collect(sessions_[rank], &c, &submit, &points[rank]), MUSTER_OK)
          << muster_last_error();
    }
    for (int rank : {0, 1}) status.push_back(muster_point_wait(sessions_[rank], points[rank], -1));
    return status;
  };
  const auto expect_moved = [&] {
    for (int rank : {0, 1}) {
      EXPECT_EQ(vectors_[rank].data[5], static_cast<float>(100 * (1 - rank)));
      EXPECT_EQ(vectors_[rank].data[6], static_cast<float>(100 * (1 - rank) + 1));
      EXPECT_EQ(std::memcmp(&vectors_[rank].data[4], &vectors_[1 - rank].data[2], 3), 0);
      EXPECT_EQ(vectors_[rank].data[7], static_cast<float>(100 * rank + 7)) << "what lies behind stays";
    }
  };
  EXPECT_THAT(start(MUSTER_U8), ElementsAre(MUSTER_OK, MUSTER_OK)) << muster_last_error();
  expect_moved();
  EXPECT_THAT(start(MUSTER_BF16), ElementsAre(MUSTER_ERR_MISMATCH, MUSTER_ERR_MISMATCH));
  EXPECT_THAT(muster_last_error(), HasSubstr("dtype from rank"));
  for (Vector& vector : vectors_) vector.data[4] = vector.data[5] = vector.data[6] = -1.0f;
  std::vector<std::thread> ranks;
  for (int rank : {0, 1})
    ranks.emplace_back([&, rank] {
      const muster_collective c = said(rank, MUSTER_U8);
      EXPECT_EQ(muster_run(sessions_[rank], &c, 0), MUSTER_OK) << muster_last_error();
    });
  for (std::thread& rank : ranks) rank.join();
  expect_moved();
}

}  // namespace
