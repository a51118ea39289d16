// A session's report on its last failure names the ranks to blame, on both paths. Supervisor and engine are
// real.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <atomic>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/kernels.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

class LastFailure : public muster::test::RunningRanks {
 protected:
  static muster_failure of(const Member& member) {
    muster_failure failure = MUSTER_FAILURE_INIT;
    EXPECT_EQ(muster_last_failure(member.session, &failure), MUSTER_OK) << muster_last_error();
    return failure;
  }
  // A run or comparison, which stops no lane.
  static void expect_of_run(const Member& member, muster_status_t status, std::int32_t culprit) {
    const muster_failure failure = of(member);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_EQ(failure.culprit_rank, culprit) << failure.text;
    EXPECT_EQ(failure.lane, MUSTER_LANE_NONE);
    EXPECT_EQ(failure.failed_point, MUSTER_POINT_NONE);
  }
};

TEST_F(LastFailure, IsNoneAtFirstAndWantsItsStruct) {
  Member member = open(0, 1);
  muster_failure failure = MUSTER_FAILURE_INIT;
  EXPECT_EQ(muster_last_failure(member.session, &failure), MUSTER_ERR_NOT_FOUND);
  EXPECT_THAT(muster_last_error(), HasSubstr("no call of this session"));
  EXPECT_EQ(muster_last_failure(nullptr, &failure), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_last_failure(member.session, nullptr), MUSTER_ERR_BAD_ARGUMENT);
  failure.size -= 1;
  EXPECT_EQ(muster_last_failure(member.session, &failure), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(member.run(muster_collective{}), MUSTER_ERR_BAD_ARGUMENT);
  failure.size += 1;
  EXPECT_EQ(muster_last_failure(member.session, &failure), MUSTER_ERR_NOT_FOUND) << "that was no group's";
  EXPECT_EQ(muster_close(member.session), MUSTER_OK);
}

TEST_F(LastFailure, NamesTheRankThatWasKilled) {
  const pid_t victim = node_.fork();
  if (victim == 0) {
    Member member = open(2, 3);
    if (member.run(member.barrier()) != MUSTER_OK) _exit(1);
    while (true) pause();
  }
  std::vector<std::thread> threads;
  std::atomic<int> met{0};
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Member member = open(rank, 3);
      EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
      ++met;
      EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_PEER_LOST);
      expect_of_run(member, MUSTER_ERR_PEER_LOST, 2);
      EXPECT_EQ(of(member).text, member.error);
      EXPECT_THAT(member.error, HasSubstr("died of signal 9 (Killed)"));
      EXPECT_EQ(muster_close(member.session), MUSTER_OK);
    });
  }
  await([&] { return met == 2; });
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  for (std::thread& thread : threads) thread.join();
}

// Goal:   a rank that returns from main without muster_close has not died, and nobody says so.
TEST_F(LastFailure, SaysHowARankEndedThatDidNotClose) {
  for (const int status : {0, 3}) {
    const pid_t leaver = node_.fork();
    if (leaver == 0) {
      Member member = open(1, 2);
      _exit(member.run(member.barrier()) == MUSTER_OK ? status : 1);
    }
    Member member = open(0, 2);
    muster_status_t heard = MUSTER_OK;
    while (heard == MUSTER_OK) heard = member.run(member.barrier());
    EXPECT_EQ(heard, MUSTER_ERR_PEER_LOST);
    EXPECT_THAT(
        member.error,
        HasSubstr(fmt::format("rank 1 (pid {}) ended with status {} without muster_close", leaver, status)));
    EXPECT_EQ(muster_close(member.session), MUSTER_OK);
    EXPECT_EQ(waitpid(leaver, nullptr, 0), leaver);
  }
}

TEST_F(LastFailure, NamesTheRankThatIsMissingAtTheDeadlineAndWhoAborted) {
  std::atomic<int> done{0};
  with_ranks(3, [&](Member& member) {
    meet_and_leave(member);
    if (member.rank != 1) {
      EXPECT_EQ(member.run(member.barrier(), 200'000'000), MUSTER_ERR_TIMEOUT);
    }
    ++done;
    await([&] { return done == 3; });
    if (member.rank == 1) {
      EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_TIMEOUT) << "comes too late";
    }
    expect_of_run(member, MUSTER_ERR_TIMEOUT, 1);
    meet_and_leave(member);
    expect_of_run(member, MUSTER_ERR_TIMEOUT, 1);  // what ends well leaves it
    if (member.rank == 2) {
      ASSERT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
    }
    EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_ABORTED);
    expect_of_run(member, MUSTER_ERR_ABORTED, 2);
  });
}

TEST_F(LastFailure, NamesLaneAndPointOfWhatWasStarted) {
  Member member = open(0, 2);
  Member other = open(1, 2);
  const Vector v = vector_of(member, 8);
  const auto what = all_reduce(member, v, v, 8);
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = MUSTER_LANE_SMALL;
  submit.deadline_ns = 100'000'000;
  muster_point point = 0;
  ASSERT_EQ(muster_collect(member.session, &what, &submit, &point), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_ERR_TIMEOUT);
  const muster_failure failure = of(member);
  EXPECT_EQ(failure.status, MUSTER_ERR_TIMEOUT);
  EXPECT_EQ(failure.culprit_rank, 1) << failure.text;
  EXPECT_EQ(failure.lane, static_cast<std::uint32_t>(MUSTER_LANE_SMALL));
  EXPECT_EQ(failure.failed_point, point);
  for (const Member& each : {member, other}) EXPECT_EQ(muster_close(each.session), MUSTER_OK);
}

// Goal:   verdicts that the members find among themselves are kept too.
TEST_F(LastFailure, NamesWhoHoldsOtherBytesAndNobodyWhereMembersDisagree) {
  with_ranks(3, [&](Member& member) {
    const Vector v = vector_of(member, 16);
    for (int i = 0; i < 16; ++i) v.data[i] = member.rank == 2 ? 2.0f : 1.0f;
    const muster_tensor view = muster_view1(v.buffer, 0, MUSTER_F32, 16);
    EXPECT_EQ(muster_compare(member.session, member.group, &view, 1, 0), MUSTER_ERR_CORRUPT);
    expect_of_run(member, MUSTER_ERR_CORRUPT, 2);
    const std::uint64_t count = member.rank == 0 ? 7 : 8;
    EXPECT_EQ(member.run(all_reduce(member, v, v, count)), MUSTER_ERR_MISMATCH);
    expect_of_run(member, MUSTER_ERR_MISMATCH, -1);
  });
}

}  // namespace
