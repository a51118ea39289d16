// Errors of calls with a session that the process itself has closed.
#include <muster/checkpoint.h>
#include <muster/units.h>

#include "tests/api/client/session_fixture.hpp"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using muster::test::on;
using muster::test::Session;
using ::testing::HasSubstr;

// Goal:   every kind of call with a closed session reports that the session is closed, and not a fork().
TEST_F(Session, IsToldToBeClosedOnceItIs) {
  muster_session* const session = open(0, 1);
  muster_group world = 0;
  ASSERT_EQ(muster_mesh_group(session, "world", &world), MUSTER_OK);
  close(session);
  muster_buffer buffer = 0;
  std::uint32_t timeline = 0;
  std::uint64_t value = 0;
  muster_failure failure = MUSTER_FAILURE_INIT;
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  const auto submit = on(MUSTER_LANE_COMPUTE);
  EXPECT_EQ(muster_interrupt(session), MUSTER_ERR_STALE);
  EXPECT_EQ(muster_event_fd(session), -1);
  const std::function<muster_status_t()> calls[] = {
      [&] { return muster_barrier(session, world); },
      [&] { return muster_plan_run(session, 1, 0); },
      [&] { return muster_plan_start(session, 1, &submit, nullptr); },
      [&] { return muster_buffer_alloc(session, 64, &buffer, nullptr); },
      [&] { return muster_point_test(session, MUSTER_POINT_NONE); },
      [&] { return muster_point_wait(session, MUSTER_POINT_NONE, 0); },
      [&] { return muster_timeline_create(session, &timeline); },
      [&] { return muster_last_failure(session, &failure); },
      [&] { return muster_counter(session, "commands", &value); },
      [&] { return muster_session_query(session, &info); },
      [&] { return muster_close(session); }};
  for (const auto& call : calls) {
    EXPECT_EQ(call(), MUSTER_ERR_STALE);
    EXPECT_STREQ(muster_last_error(),
                 "the session is closed: no call can use it; open another with muster_open");
  }
}

// Goal:   this holds after many more sessions were closed, and an open session never reuses a closed one.
TEST_F(Session, StaysClosedWhileOthersComeAndGo) {
  muster_session* const first = open(0, 1);
  close(first);
  for (int i = 0; i < 64; ++i) {
    muster_session* const next = open(0, 1);
    EXPECT_NE(next, first) << i;
    EXPECT_EQ(muster_barrier(first, 1), MUSTER_ERR_STALE) << i;
    close(next);
  }
}

// Goal:   a child of fork() hears of fork() about its parent's session, and not about one that was closed.
TEST_F(Session, IsToldToBeClosedInAChildToo) {
  muster_session* const closed = open(0, 2);
  muster_session* const live = open(1, 2);
  close(closed);
  const pid_t child = node_.fork();
  if (child == 0) {
    const auto says = [](muster_session* session, const char* words) {
      return muster_timeline_signal(session, 16, 1) == MUSTER_ERR_STALE &&
             std::string(muster_last_error()).find(words) != std::string::npos;
    };
    _exit(!says(closed, "the session is closed")           ? 1
          : !says(live, "a child of fork() opens its own") ? 2
                                                           : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Goal:   units and checkpoints whose session was closed before them say so too, and can be given back.
TEST_F(Session, IsToldToBeClosedByWhatIsMadeOfIt) {
  muster_session* const session = open(0, 1);
  muster_units* units = nullptr;
  ASSERT_EQ(muster_units_create(session, nullptr, &units), MUSTER_OK) << muster_last_error();
  close(session);
  EXPECT_EQ(muster_step_begin(units, MUSTER_POINT_NONE, 0), MUSTER_ERR_STALE);
  EXPECT_THAT(muster_last_error(), HasSubstr("the session is closed"));
  EXPECT_EQ(muster_units_destroy(units), MUSTER_OK);
  muster_checkpoints* checkpoints = nullptr;
  muster_checkpoints_options options = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  options.folder = "run";
  EXPECT_EQ(muster_checkpoints_open(session, &options, &checkpoints), MUSTER_ERR_STALE);
  EXPECT_THAT(muster_last_error(), HasSubstr("the session is closed"));
}

}  // namespace
