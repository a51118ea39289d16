// Interrupts: a watchdog gets a rank out of its wait, and nobody waits for that rank any more. Real
// supervisor and engine; each rank on a thread of its own.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/kernels.h>
#include <pthread.h>

namespace {

using Time = std::chrono::steady_clock;
using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

constexpr std::int64_t kMinute = 60'000'000'000;
constexpr auto kSoon = std::chrono::seconds(1);       // from the interrupt to the end of the call
constexpr std::size_t kLarge = std::size_t{4} << 20;  // elements: the engine is to reduce them

// Interrupts the session from a thread of its own, some time after it was made.
class Watchdog {
 public:
  explicit Watchdog(muster_session* session, std::chrono::milliseconds after = std::chrono::milliseconds(100))
      : thread_([this, session, after] {
          std::this_thread::sleep_for(after);
          at_ = Time::now();
          EXPECT_EQ(muster_interrupt(session), MUSTER_OK);
        }) {}
  // How long ago; the call that it was for has returned.
  Time::duration ago() {
    const Time::time_point now = Time::now();
    thread_.join();
    return now - at_;
  }

 private:
  Time::time_point at_;
  std::thread thread_;
};

class Interrupt : public muster::test::RunningRanks {
 protected:
  static void expect_spent(Member& member) {
    EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  }
  static void expect_culprit(const Member& member, muster_status_t status, std::int32_t culprit) {
    muster_failure failure = MUSTER_FAILURE_INIT;
    ASSERT_EQ(muster_last_failure(member.session, &failure), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_EQ(failure.culprit_rank, culprit) << failure.text;
  }
  // Rank 2 does not come, rank 0 is interrupted, rank 1 hears; then all go on.
  void expect_end_for_all(const std::function<muster_status_t(Member&)>& call) {
    std::atomic<int> heard{0};
    with_ranks(3, [&](Member& member) {
      meet_and_leave(member);
      if (member.rank == 0) {
        Watchdog watchdog(member.session);
        EXPECT_EQ(call(member), MUSTER_ERR_INTERRUPTED) << muster_last_error();
        EXPECT_THAT(muster_last_error(), HasSubstr("rank 0 was interrupted"));
        EXPECT_LT(watchdog.ago(), kSoon);
        expect_culprit(member, MUSTER_ERR_INTERRUPTED, 0);
      } else {
        await([&] { return member.rank != 2 || heard >= 2; });
        EXPECT_EQ(call(member), MUSTER_ERR_ABORTED) << muster_last_error();
        EXPECT_THAT(muster_last_error(), HasSubstr("rank 0 was interrupted"));
        expect_culprit(member, MUSTER_ERR_ABORTED, 0);
      }
      ++heard;
      EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
      EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    });
  }
};

TEST_F(Interrupt, EndsARunForItsWholeGroup) {
  expect_end_for_all([](Member& member) { return member.run(member.barrier(), kMinute); });
}

TEST_F(Interrupt, EndsAComparisonForItsWholeGroup) {
  expect_end_for_all([](Member& member) {
    const Vector v = vector_of(member, 16);
    const muster_tensor view = muster_view1(v.buffer, 0, MUSTER_F32, 16);
    return muster_compare(member.session, member.group, &view, 1, kMinute);
  });
}

TEST_F(Interrupt, EndsAnObjectForItsWholeGroup) {
  expect_end_for_all([](Member& member) {
    const void* all = nullptr;
    std::uint64_t offsets[4];
    return muster_object_gather(member.session, member.group, -1, "word", 4, &all, offsets);
  });
}

// Goal:   members that have agreed and wait in the engine get away as well, each told once.
// Method: in the engine rank 1 comes late to what both have agreed on: in front of it on its lane stands a
//         fill that waits for an operation of another group, to which rank 0 comes once it has been told.
TEST_F(Interrupt, EndsWhatWaitsInTheEngine) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kLarge);
    const auto large = all_reduce(member, v, v, kLarge);
    const std::int32_t both[] = {0, 1};
    muster_collective gate = member.barrier();
    ASSERT_EQ(muster_group_make(member.session, both, 2, "gate", &gate.group), MUSTER_OK);
    ASSERT_EQ(member.run(large), MUSTER_OK) << member.error;
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_SMALL;
    muster_point opened = 0;
    if (member.rank == 0) {
      Watchdog watchdog(member.session, std::chrono::milliseconds(300));
      EXPECT_EQ(member.run(large, kMinute), MUSTER_ERR_INTERRUPTED) << member.error;
      EXPECT_LT(watchdog.ago(), kSoon);
      expect_culprit(member, MUSTER_ERR_INTERRUPTED, 0);
      ASSERT_EQ(muster_collect(member.session, &gate, &submit, &opened), MUSTER_OK) << muster_last_error();
    } else {
      ASSERT_EQ(muster_collect(member.session, &gate, &submit, &opened), MUSTER_OK) << muster_last_error();
      const muster_kernel fill = muster_fill(muster_view1(v.buffer, 0, MUSTER_F32, kLarge), 1.0);
      submit.lane = MUSTER_LANE_ALLREDUCE;
      submit.waits[submit.wait_count++] = opened;
      ASSERT_EQ(muster_launch(member.session, &fill, &submit, nullptr), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(member.run(large, kMinute), MUSTER_ERR_ABORTED) << member.error;
      EXPECT_THAT(member.error, HasSubstr("rank 0 was interrupted"));
      expect_culprit(member, MUSTER_ERR_ABORTED, 0);
    }
    EXPECT_EQ(muster_point_wait(member.session, opened, -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(member.run(large), MUSTER_OK) << member.error;
  });
}

TEST_F(Interrupt, LeavesAPointToItsOperation) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const auto what = all_reduce(member, v, v, 8);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_SMALL;
    std::fill_n(v.data, 8, 1.0f);
    ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    muster_point point = 0;
    if (member.rank == 0) {
      ASSERT_EQ(muster_collect(member.session, &what, &submit, &point), MUSTER_OK) << muster_last_error();
      Watchdog watchdog(member.session);
      EXPECT_EQ(muster_point_wait(member.session, point, kMinute), MUSTER_ERR_WAIT_INTERRUPTED);
      EXPECT_LT(watchdog.ago(), kSoon);
      muster_failure failure = MUSTER_FAILURE_INIT;
      EXPECT_EQ(muster_last_failure(member.session, &failure), MUSTER_ERR_NOT_FOUND) << "nothing has failed";
      Watchdog again(member.session);
      std::size_t index = 0;
      EXPECT_EQ(muster_point_wait_any(member.session, &point, 1, kMinute, &index),
                MUSTER_ERR_WAIT_INTERRUPTED);
      EXPECT_EQ(index, 1u);
      EXPECT_LT(again.ago(), kSoon);
      EXPECT_EQ(muster_point_test(member.session, point), MUSTER_PENDING);
    }
    ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    if (member.rank == 1) {
      ASSERT_EQ(muster_collect(member.session, &what, &submit, &point), MUSTER_OK) << muster_last_error();
    }
    EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(v.data[7], 2.0f);
  });
}

// Goal:   an interrupt that comes between two calls is kept, by calls that need not wait too.
TEST_F(Interrupt, IsTakenByTheNextCallThatWaits) {
  std::atomic<bool> done{false};
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_collective alone = member.barrier();
    alone.group = MUSTER_GROUP_SELF;
    const muster_kernel fill = muster_fill(muster_view1(v.buffer, 0, MUSTER_F32, 8), 1.0);
    meet_and_leave(member);
    if (member.rank == 0) {
      muster_point point = 0;
      ASSERT_EQ(muster_launch(member.session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(muster_interrupt(member.session), MUSTER_OK);
      ASSERT_EQ(muster_interrupt(member.session), MUSTER_OK) << "two may be one";
      EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << "it is there";
      EXPECT_EQ(member.run(alone), MUSTER_OK) << "nobody is waited for";
      const auto what = all_reduce(member, v, v, 8);
      ASSERT_EQ(muster_collect(member.session, &what, &submit, &point), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_point_wait(member.session, point, 0), MUSTER_ERR_WAIT_TIMEOUT) << "only tested";
      EXPECT_EQ(muster_point_wait(member.session, point, kMinute), MUSTER_ERR_WAIT_INTERRUPTED);
      EXPECT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
      EXPECT_EQ(muster_point_wait(member.session, point, kMinute), MUSTER_ERR_ABORTED) << "it is spent";
      done = true;
    }
    await([&] { return done.load(); });
  });
}

// Goal:   a caller that gets another failure is not interrupted while it handles that failure.
TEST_F(Interrupt, IsSpentOnACallThatFailsOtherwise) {
  std::atomic<bool> raised{false};
  with_ranks(2, [&](Member& member) {
    meet_and_leave(member);
    if (member.rank == 1) {
      ASSERT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
    }
    if (member.rank == 0) {
      ASSERT_EQ(muster_interrupt(member.session), MUSTER_OK);
    }
    if (member.rank == 1) raised = true;
    await([&] { return raised.load(); });
    EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_ABORTED) << member.error;
    EXPECT_THAT(member.error, HasSubstr("rank 1 aborted"));
    if (member.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    expect_spent(member);
  });
}

muster_session* g_interrupted = nullptr;

TEST_F(Interrupt, ComesFromASignalHandler) {
  struct sigaction action {};
  action.sa_handler = [](int) { static_cast<void>(muster_interrupt(g_interrupted)); };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  Member member = open(0, 2);
  Member other = open(1, 2);
  g_interrupted = member.session;
  const pthread_t self = pthread_self();
  Time::time_point at;
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    at = Time::now();
    pthread_kill(self, SIGUSR1);
  });
  EXPECT_EQ(member.run(member.barrier(), kMinute), MUSTER_ERR_INTERRUPTED) << member.error;
  const Time::time_point now = Time::now();
  sender.join();
  EXPECT_LT(now - at, kSoon);
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
  for (const Member& each : {member, other}) EXPECT_EQ(muster_close(each.session), MUSTER_OK);
}

TEST_F(Interrupt, RefusesNoSession) {
  EXPECT_EQ(muster_interrupt(nullptr), MUSTER_ERR_BAD_ARGUMENT);
}

}  // namespace
