// The text of a deadline says how long it was. If parts stand on their lanes in orders that never meet, it
// also says that none is missing: which is first, where the other part stands, and what to do.
#include <muster/muster.h>

#include "tests/api/client/session_fixture.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::group_of;
using muster::test::on;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Kind { kSend, kReceive, kSum };
struct Part {
  Kind kind;
  int peer = 0;
  std::uint32_t tag = 0;
};

class LaneOrder : public muster::test::Session {
 protected:
  // Each rank starts its parts in order on one lane. All fail at the deadline, or because of one that did.
  void expect_told(const std::vector<std::vector<Part>>& ranks, const std::vector<const char*>& places) {
    const std::vector<muster_session*> sessions = open_all(static_cast<int>(ranks.size()));
    std::vector<std::vector<muster_point>> points(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (const Part& part : ranks[rank]) points[rank].push_back(start(sessions[rank], part));
    std::vector<::testing::Matcher<std::string>> any;
    for (const char* place : places) any.emplace_back(HasSubstr(place));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_NE(muster_point_wait(sessions[rank], points[rank].front(), -1), MUSTER_OK);
      const std::string said = muster_last_error();
      EXPECT_THAT(said, ::testing::AnyOfArray(any)) << "rank " << rank;
      EXPECT_THAT(said, HasSubstr("deadline of 0.3 s")) << "rank " << rank;
      EXPECT_THAT(said, HasSubstr("in one order at all ranks")) << "rank " << rank;
      EXPECT_THAT(said, Not(HasSubstr("missing"))) << "rank " << rank;
    }
    while (!open_.empty()) close(open_.back());
  }

 private:
  muster_point start(muster_session* session, const Part& part) {
    const Vector vector = vector_of(session, 4);
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = part.kind == Kind::kSend      ? MUSTER_SEND
           : part.kind == Kind::kReceive ? MUSTER_RECV
                                         : MUSTER_ALL_REDUCE;
    c.group = group_of(session, "world");
    c.dtype = MUSTER_F32;
    c.count = 1;
    if (part.kind != Kind::kReceive) c.source = {vector.buffer, 0};
    if (part.kind != Kind::kSend) c.target = {vector.buffer, 0};
    if (part.kind == Kind::kSum) {
      c.redop = MUSTER_SUM;
    } else {
      c.peer = part.peer;
      c.tag = part.tag;
    }
    muster_submit submit = on(MUSTER_LANE_HALO);
    submit.deadline_ns = 300'000'000;
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_collect(session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    return point;
  }
};

constexpr Kind kSend = Kind::kSend, kReceive = Kind::kReceive, kSum = Kind::kSum;

TEST_F(LaneOrder, IsToldWhereBothRanksReceiveFirst) {
  expect_told(
      {{{kReceive, 1, 1}, {kSend, 1, 2}}, {{kReceive, 0, 2}, {kSend, 0, 1}}},
      {"rank 1 has its send at position 2 of lane halo", "rank 0 has its send at position 2 of lane halo"});
}

TEST_F(LaneOrder, IsToldWhereBothRanksSendFirst) {
  expect_told(
      {{{kSend, 1, 1}, {kReceive, 1, 2}}, {{kSend, 0, 2}, {kReceive, 0, 1}}},
      {"rank 1 has its recv at position 2 of lane halo", "rank 0 has its recv at position 2 of lane halo"});
}

TEST_F(LaneOrder, IsToldOfARingInWhichAllReceiveFirst) {
  expect_told(
      {{{kReceive, 2, 1}, {kSend, 1, 1}},
       {{kReceive, 0, 1}, {kSend, 2, 1}},
       {{kReceive, 1, 1}, {kSend, 0, 1}}},
      {"rank 0 has its send at position 2 of lane halo", "rank 1 has its send at position 2 of lane halo",
       "rank 2 has its send at position 2 of lane halo"});
}

TEST_F(LaneOrder, IsToldWhereAMessageStandsBehindASum) {
  expect_told({{{kSum}, {kSend, 1, 1}}, {{kReceive, 0, 1}, {kSum}}},
              {"rank 0 has its send at position 2 of lane halo",
               "rank 1 has its all_reduce at position 2 of lane halo"});
}

// ---- what a deadline says ----------------------------------------------------------------------

class ShortDeadlines : public muster::test::Session {
 protected:
  void SetUp() override {
    node_.options.job_defaults.deadline = std::chrono::milliseconds(250);
    Session::SetUp();
  }
};

// Goal:   whichever call waits, a rank that is alone hears how long its deadline was and what gives more.
TEST_F(ShortDeadlines, SayHowLongTheyWereInEachCall) {
  muster_session* const session = open(0, 2);
  const muster_group world = group_of(session, "world");
  const Vector vector = vector_of(session, 4);
  const muster_collective sum = muster::test::all_reduce(world, vector, 4);
  const auto expect_said = [](muster_status_t status, const char* length) {
    EXPECT_EQ(status, MUSTER_ERR_TIMEOUT);
    EXPECT_THAT(muster_last_error(), HasSubstr(length));
    for (const char* setting : {"deadline_ns", "muster_mesh_deadline", "defaults.deadline"})
      EXPECT_THAT(muster_last_error(), HasSubstr(setting));
  };
  expect_said(muster_barrier(session, world), "its deadline of 0.25 s");
  expect_said(muster_run(session, &sum, 0), "its deadline of 0.25 s");
  expect_said(muster_run(session, &sum, 350'000'000), "its deadline of 0.35 s");
  const muster_tensor view{vector.buffer, 0, MUSTER_F32, 1, {4}, {1}};
  expect_said(muster_compare(session, world, &view, 1, 0), "its deadline of 0.25 s");
  const void* bytes = nullptr;
  std::uint64_t offsets[3] = {};
  expect_said(muster_object_gather(session, world, -1, "x", 1, &bytes, offsets), "its deadline of 0.25 s");
  muster_submit submit = on(MUSTER_LANE_SMALL);
  submit.deadline_ns = 300'000'000;
  muster_point point = MUSTER_POINT_NONE;
  ASSERT_EQ(muster_collect(session, &sum, &submit, &point), MUSTER_OK) << muster_last_error();
  expect_said(muster_point_wait(session, point, -1), "its deadline of 0.3 s");
}

}  // namespace
