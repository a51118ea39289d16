// The library as a program uses it: real supervisor, real engine process, several sessions.
#include <muster/kernels.h>

#include "tests/api/client/session_fixture.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using muster::test::all_reduce;
using muster::test::fill_of;
using muster::test::group_of;
using muster::test::on;
using muster::test::plan_of;
using muster::test::Session;
using muster::test::timeline_of;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::HasSubstr;

TEST_F(Session, TellsWhoItIs) {
  muster_session* session = open(1, 2, "train", "dp_shard=2");
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  ASSERT_EQ(muster_session_query(session, &info), MUSTER_OK);
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.world_size, 2);
  EXPECT_EQ(info.attachments, 0u);
  EXPECT_STREQ(info.job, "train");
  EXPECT_STREQ(info.mesh, "pp=1,dp_replicate=1,dp_shard=2,cp=1,tp=1");
}

TEST_F(Session, GivesZeroedMemoryThatItCanWrite) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 1000);
  EXPECT_EQ(std::accumulate(v.data, v.data + 1000, 0.0f), 0.0f);
  std::fill(v.data, v.data + 1000, 3.0f);
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_OK);
  const Vector again = vector_of(session, 1000);
  EXPECT_EQ(std::accumulate(again.data, again.data + 1000, 0.0f), 0.0f);
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_ERR_STALE);
}

TEST_F(Session, RunsKernelsInLaneOrder) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 64);
  const muster_tensor view = muster_view1(v.buffer, 0, MUSTER_F32, 64);
  const muster_submit submit = on(MUSTER_LANE_COMPUTE);
  muster_point point = 0;
  const muster_kernel fill = muster_fill(view, 2.0);
  const muster_kernel triple = muster_axpby(2.0, view, 1.0, view);
  ASSERT_EQ(muster_launch(session, &fill, &submit, nullptr), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(muster_launch(session, &triple, &submit, &point), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(v.data[63], 6.0f);
}

TEST_F(Session, RefusesKernelsWhoseOutputOverlapsAnInput) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 64);
  const auto part = [&](std::uint64_t first) {
    return muster_view1(v.buffer, first * sizeof(float), MUSTER_F32, 32);
  };
  muster_plan plan = 0;
  const muster_kernel shift = muster_copy(part(0), part(8));
  EXPECT_EQ(muster_plan_kernel(session, &shift, &plan), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_STREQ(muster_last_error(),
               "copy: target and source overlap; what is written must lie apart from the rest");
  const muster_kernel apart = muster_copy(part(0), part(32));
  EXPECT_EQ(muster_plan_kernel(session, &apart, &plan), MUSTER_OK) << muster_last_error();
}

TEST_F(Session, ReducesAcrossRanks) {
  const auto sessions = open_all(4);
  std::vector<Vector> vectors;
  std::vector<muster_point> points;
  for (int rank = 0; rank < 4; ++rank) {
    vectors.push_back(vector_of(sessions[rank], 1001));
    std::fill(vectors[rank].data, vectors[rank].data + 1001, static_cast<float>(rank + 1));
  }
  for (int rank = 0; rank < 4; ++rank) {
    const auto what = all_reduce(group_of(sessions[rank], "world"), vectors[rank], 1001);
    const auto submit = on(MUSTER_LANE_ALLREDUCE);
    points.emplace_back();
    ASSERT_EQ(muster_collect(sessions[rank], &what, &submit, &points.back()), MUSTER_OK)
        << muster_last_error();
  }
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(muster_point_wait(sessions[rank], points[rank], -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(vectors[rank].data[1000], 10.0f);
  }
}

// Goal: the second of three is found first, is struck out, and the others follow; what nobody can reach is
//       said.
TEST_F(Session, WaitsForAnyOfSeveralPoints) {
  muster_session* session = open(0, 1);
  const std::uint32_t timeline = timeline_of(session);
  const muster_lane lanes[] = {MUSTER_LANE_COPY, MUSTER_LANE_COMPUTE, MUSTER_LANE_GATHER};
  std::array<muster_point, 3> points{};
  for (int i = 0; i < 3; ++i) {
    const Vector v = vector_of(session, 16);
    const muster_kernel one = fill_of(v, 16);
    muster_submit submit = on(lanes[i]);
    if (i != 1) {
      submit.wait_count = 1;
      submit.waits[0] = muster_timeline_point(timeline, static_cast<std::uint64_t>(i + 1));
    }
    ASSERT_EQ(muster_launch(session, &one, &submit, &points[i]), MUSTER_OK) << muster_last_error();
  }
  const auto wait_any = [&](std::int64_t timeout_ns, std::size_t* index) {
    return muster_point_wait_any(session, points.data(), points.size(), timeout_ns, index);
  };
  std::size_t index = 99;
  ASSERT_EQ(wait_any(-1, &index), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(index, 1u);
  const muster_point reached = std::exchange(points[1], MUSTER_POINT_NONE);
  EXPECT_EQ(wait_any(0, &index), MUSTER_ERR_WAIT_TIMEOUT);
  EXPECT_EQ(index, 3u);
  ASSERT_EQ(muster_timeline_signal(session, timeline, 3), MUSTER_OK);
  std::array<int, 3> times{};
  for (int left = 0; left < 2; ++left) {
    ASSERT_EQ(wait_any(-1, &index), MUSTER_OK) << muster_last_error();
    ASSERT_LT(index, 3u);
    ++times[index];
    points[index] = MUSTER_POINT_NONE;
  }
  EXPECT_EQ(times, (std::array<int, 3>{1, 0, 1}));
  EXPECT_EQ(wait_any(-1, &index), MUSTER_OK);
  EXPECT_EQ(index, 3u);
  points = {muster_timeline_point(timeline, 9), MUSTER_POINT_NONE, muster_timeline_point(timeline, 8)};
  EXPECT_EQ(wait_any(-1, &index), MUSTER_ERR_STATE);
  EXPECT_EQ(wait_any(0, &index), MUSTER_ERR_WAIT_TIMEOUT);
  points[1] = muster_timeline_point(timeline, 3);
  points[2] = reached;
  EXPECT_EQ(wait_any(-1, &index), MUSTER_OK);
  EXPECT_EQ(index, 1u) << "of two that are reached, the first";
  std::swap(points[1], points[2]);
  EXPECT_EQ(wait_any(-1, &index), MUSTER_OK);
  EXPECT_EQ(index, 1u);
  points[0] = muster_timeline_point(timeline + 1, 1);
  EXPECT_EQ(wait_any(-1, &index), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(index, 0u);
  EXPECT_EQ(muster_point_wait_any(session, nullptr, 1, -1, &index), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_point_wait_any(session, nullptr, 0, -1, &index), MUSTER_OK);
}

TEST_F(Session, WaitsAcrossLanesAndForClientTimelines) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_tensor view = muster_view1(v.buffer, 0, MUSTER_F32, 16);
  const std::uint32_t timeline = timeline_of(session);
  muster_submit submit = on(MUSTER_LANE_COPY);
  submit.wait_count = 1;
  submit.waits[0] = muster_timeline_point(timeline, 5);
  const muster_kernel one = muster_fill(view, 1.0);
  muster_point filled = 0;
  ASSERT_EQ(muster_launch(session, &one, &submit, &filled), MUSTER_OK);
  submit.lane = MUSTER_LANE_COMPUTE;
  submit.waits[0] = filled;
  const muster_kernel two = muster_fill(view, 2.0);
  muster_point last = 0;
  ASSERT_EQ(muster_launch(session, &two, &submit, &last), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(session, last, 30'000'000), MUSTER_ERR_WAIT_TIMEOUT);
  EXPECT_EQ(muster_timeline_signal(session, timeline, 5), MUSTER_OK);
  ASSERT_EQ(muster_point_wait(session, last, -1), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(v.data[0], 2.0f);
}

TEST_F(Session, RefusesWhatLiesOutsideABuffer) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  muster_plan plan = 0;
  const muster_kernel beyond = fill_of(v, 17);
  EXPECT_EQ(muster_plan_kernel(session, &beyond, &plan), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("behind the buffer's 64 bytes"));
  const muster_kernel forged = muster_fill(muster_view1(v.buffer + 1, 0, MUSTER_F32, 1), 1.0);
  EXPECT_EQ(muster_plan_kernel(session, &forged, &plan), MUSTER_ERR_STALE);
  EXPECT_EQ(plan, 0u);
  muster_submit submit = on(MUSTER_LANE_COMPUTE);
  EXPECT_EQ(muster_plan_start(session, 12345, &submit, nullptr), MUSTER_ERR_STALE);
}

TEST_F(Session, KeepsABufferWhileAPlanUsesIt) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_plan plan = plan_of(session, fill_of(v, 16));
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_ERR_BUSY);
  EXPECT_EQ(muster_plan_destroy(session, plan), MUSTER_OK);
  EXPECT_EQ(muster_plan_destroy(session, plan), MUSTER_ERR_STALE);
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_OK);
}

// Goal:   one-shot operations do not keep their memory for ever, since nobody has a handle of their plans.
TEST_F(Session, FreesABufferThatOneShotOperationsUsed) {
  muster_session* session = open(0, 1);
  const Vector other = vector_of(session, 16);
  for (int round = 0; round < 20; ++round) {
    const Vector v = vector_of(session, 16);
    const muster_kernel fill = fill_of(v, 16);
    auto submit = on(MUSTER_LANE_COMPUTE);
    muster_point point = 0;
    ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK) << muster_last_error();
    auto what = all_reduce(group_of(session, "world"), v, 16);
    what.target = {other.buffer, 0};
    ASSERT_EQ(muster_run(session, &what, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(other.data[15], 1.0f);
    ASSERT_EQ(muster_buffer_free(session, v.buffer), MUSTER_OK) << muster_last_error();
  }
}

TEST_F(Session, KeepsABufferWhileAOneShotOperationIsInFlight) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const std::uint32_t timeline = timeline_of(session);
  const muster_kernel fill = fill_of(v, 16);
  auto submit = on(MUSTER_LANE_COMPUTE);
  submit.wait_count = 1;
  submit.waits[0] = muster_timeline_point(timeline, 1);
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_ERR_BUSY);
  ASSERT_EQ(muster_timeline_signal(session, timeline, 1), MUSTER_OK);
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_buffer_free(session, v.buffer), MUSTER_OK) << muster_last_error();
}

TEST_F(Session, GivesTheSameGroupForNamesWithTheSameRanks) {
  muster_session* session = open(3, 4, "job", "dp_shard=2,tp=2");
  EXPECT_EQ(group_of(session, "dp_shard"), group_of(session, "dp"));
  EXPECT_NE(group_of(session, "dp_shard"), group_of(session, "tp"));
  EXPECT_EQ(group_of(session, "pp"), MUSTER_GROUP_SELF);
  std::array<std::int32_t, 4> ranks{};
  std::size_t count = 0;
  ASSERT_EQ(muster_group_ranks(session, group_of(session, "dp_shard"), ranks.data(), ranks.size(), &count),
            MUSTER_OK);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(ranks[0], 1);
  EXPECT_EQ(ranks[1], 3);
  std::int32_t coordinate = -1;
  std::int32_t size = -1;
  ASSERT_EQ(muster_mesh_coords(session, "tp", &coordinate, &size), MUSTER_OK);
  EXPECT_EQ(coordinate, 1);
  EXPECT_EQ(size, 2);
  muster_group none = 0;
  EXPECT_EQ(muster_mesh_group(session, "bogus", &none), MUSTER_ERR_NOT_FOUND);
  EXPECT_THAT(muster_last_error(), HasSubstr("dp_shard"));
}

TEST_F(Session, TellsBothSidesWhatTheyDisagreeOn) {
  const auto sessions = open_all(2);
  std::array<muster_point, 2> points{};
  for (int rank = 0; rank < 2; ++rank) {
    const Vector v = vector_of(sessions[rank], 100);
    const auto what = all_reduce(group_of(sessions[rank], "world"), v, 50 + static_cast<std::uint64_t>(rank));
    const auto submit = on(MUSTER_LANE_REDUCE);
    ASSERT_EQ(muster_collect(sessions[rank], &what, &submit, &points[rank]), MUSTER_OK);
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(muster_point_wait(sessions[rank], points[rank], -1), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), HasSubstr("count: 50 at rank 0 and 51 at rank 1"));
    muster_failure failure = MUSTER_FAILURE_INIT;
    ASSERT_EQ(muster_lane_failure(sessions[rank], MUSTER_LANE_REDUCE, &failure), MUSTER_OK);
    EXPECT_EQ(failure.failed_point, points[rank]);
    EXPECT_EQ(muster_lane_reset(sessions[rank], MUSTER_LANE_REDUCE), MUSTER_OK);
  }
  for (muster_session* session : sessions)
    EXPECT_EQ(muster_point_test(session, points[0]), MUSTER_ERR_MISMATCH);
}

TEST_F(Session, BlamesTheMissingRankAtTheDeadline) {
  const auto sessions = open_all(2);
  const Vector v = vector_of(sessions[0], 8);
  const auto what = all_reduce(group_of(sessions[0], "world"), v, 8);
  auto submit = on(MUSTER_LANE_SMALL);
  submit.deadline_ns = 200'000'000;
  muster_point point = 0;
  ASSERT_EQ(muster_collect(sessions[0], &what, &submit, &point), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(sessions[0], point, -1), MUSTER_ERR_TIMEOUT);
  EXPECT_THAT(muster_last_error(), HasSubstr("missing rank 1"));
}

TEST_F(Session, HoldsARankOnceAndLetsItComeBack) {
  muster_session* session = open(0, 1);
  muster_open_options options = node_.rank("job", 0, 1);
  options.timeout_ns = 5'000'000'000;
  muster_session* second = nullptr;
  EXPECT_EQ(muster_open(&options, &second), MUSTER_ERR_DUPLICATE);
  EXPECT_THAT(muster_last_error(), HasSubstr("held by process"));
  close(session);
  session = open(0, 1);
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  ASSERT_EQ(muster_session_query(session, &info), MUSTER_OK);
  EXPECT_EQ(info.attachments, 1u);
}

TEST_F(Session, NamesTheRankThatWasKilled) {
  muster_session* survivor = open(0, 2);
  const pid_t child = node_.fork();
  if (child == 0) {
    const muster_open_options options = node_.rank("job", 1, 2);
    muster_session* session = nullptr;
    if (muster_open(&options, &session) != MUSTER_OK) _exit(1);
    pause();
    _exit(0);
  }
  // The child is attached once a barrier with a short deadline no longer says so.
  const Vector v = vector_of(survivor, 8);
  const auto what = all_reduce(group_of(survivor, "world"), v, 8);
  const auto submit = on(MUSTER_LANE_SMALL);
  muster_point point = 0;
  ASSERT_EQ(muster_collect(survivor, &what, &submit, &point), MUSTER_OK);
  usleep(300'000);
  kill(child, SIGKILL);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(muster_point_wait(survivor, point, -1), MUSTER_ERR_PEER_LOST);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  EXPECT_THAT(muster_last_error(),
              HasSubstr("rank 1 (pid " + std::to_string(child) + ") died of signal 9 (Killed)"));
  waitpid(child, nullptr, 0);
}

TEST_F(Session, RingsTheEventDescriptorAtACompletion) {
  muster_session* session = open(0, 1);
  const int descriptor = muster_event_fd(session);
  ASSERT_GE(descriptor, 0) << muster_last_error();
  const Vector v = vector_of(session, 8);
  const muster_kernel fill = fill_of(v, 8);
  const auto submit = on(MUSTER_LANE_COMPUTE);
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK);
  pollfd entry{descriptor, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_EQ(muster_point_wait(session, point, -1), MUSTER_OK);
}

TEST_F(Session, SaysStaleInAForkedChild) {
  muster_session* session = open(0, 1);
  const pid_t child = node_.fork();
  if (child == 0) {
    muster_buffer buffer = 0;
    std::uint32_t timeline = 0;
    std::uint64_t value = 0;
    muster_failure failure = MUSTER_FAILURE_INIT;
    const auto submit = on(MUSTER_LANE_COMPUTE);
    const std::array said{muster_buffer_alloc(session, 64, &buffer, nullptr),
                          muster_plan_start(session, 1, &submit, nullptr),
                          muster_point_test(session, MUSTER_POINT_NONE),
                          muster_point_wait(session, MUSTER_POINT_NONE, 0),
                          muster_timeline_create(session, &timeline),
                          muster_timeline_signal(session, 16, 1),
                          muster_lane_failure(session, MUSTER_LANE_COMPUTE, &failure),
                          muster_last_failure(session, &failure),
                          muster_interrupt(session),
                          muster_lane_reset(session, MUSTER_LANE_COMPUTE),
                          muster_counter(session, "commands", &value)};
    for (std::size_t i = 0; i < said.size(); ++i)
      if (said[i] != MUSTER_ERR_STALE) _exit(static_cast<int>(i) + 1);
    _exit(muster_close(session) == MUSTER_OK ? 0 : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, 64, &buffer, nullptr), MUSTER_OK) << "the parent's is untouched";
}

// Starts the plan until the session says BUSY although the engine has taken all from the ring; how often that
// was. A ring that is full for a moment says BUSY too. `earlier` commands were given before.
int start_all(muster_session* session, muster_plan plan, const muster_submit& submit, muster_point* last,
              int earlier = 0) {
  int accepted = 0;
  for (int idle = 0; idle < 20'000 && accepted < 5000;) {
    std::uint64_t taken = 0;
    EXPECT_EQ(muster_counter(session, "commands", &taken), MUSTER_OK);
    const bool ring_empty = taken == static_cast<std::uint64_t>(earlier + accepted);
    const muster_status_t status = muster_plan_start(session, plan, &submit, last);
    if (status == MUSTER_OK) {
      ++accepted;
      continue;
    }
    EXPECT_EQ(status, MUSTER_ERR_BUSY) << muster_last_error();
    if (ring_empty) break;
    ++idle;
    usleep(100);
  }
  return accepted;
}

// Goal:   a full lane does not fill the ring: what would set it free still passes.
TEST_F(Session, SaysBusyForAFullLaneAndLetsASignalPass) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_plan plan = plan_of(session, fill_of(v, 16));
  const std::uint32_t timeline = timeline_of(session);
  muster_submit submit = on(MUSTER_LANE_COMPUTE);
  submit.wait_count = 1;
  submit.waits[0] = muster_timeline_point(timeline, 1);
  muster_point last = 0;
  EXPECT_EQ(start_all(session, plan, submit, &last), 1024);
  EXPECT_THAT(muster_last_error(), HasSubstr("lane 0 has 1024 starts that are not finished, all that "
                                             "limits.starts_per_lane_max allows"));
  const auto other = on(MUSTER_LANE_COPY);
  muster_point copied = 0;
  ASSERT_EQ(muster_plan_start(session, plan, &other, &copied), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(session, copied, -1), MUSTER_OK) << "another lane goes on";
  EXPECT_EQ(muster_timeline_signal(session, timeline, 1), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(session, last, -1), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_plan_start(session, plan, &submit, nullptr), MUSTER_OK) << "there is room again";
}

TEST_F(Session, CountsFailedStartsAsDone) {
  muster_session* session = open(0, 2);
  const Vector v = vector_of(session, 16);
  const auto submit = on(MUSTER_LANE_SMALL);
  const muster_group world = group_of(session, "world");
  const auto what = all_reduce(world, v, 16);
  ASSERT_EQ(muster_collect(session, &what, &submit, nullptr), MUSTER_OK);
  const muster_plan plan = plan_of(session, fill_of(v, 16));
  muster_point last = 0;
  EXPECT_EQ(start_all(session, plan, submit, &last, 1), 1023);
  EXPECT_EQ(muster_group_abort(session, world), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(session, last, -1), MUSTER_ERR_ABORTED);
  EXPECT_EQ(muster_lane_reset(session, MUSTER_LANE_SMALL), MUSTER_OK);
  muster_point fresh = 0;
  ASSERT_EQ(muster_plan_start(session, plan, &submit, &fresh), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(session, fresh, INT64_MAX), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_test(session, last), MUSTER_ERR_ABORTED) << "and keeps its verdict";
}

// Goal:   a reset takes with it what fails until the lane's next start, and no verdict is lost on the way.
// Method: the lane is well when it is reset, with two starts in flight that fail afterwards; later ones
//         succeed, and then another fails in their place on the page.
TEST_F(Session, ResetsWhatFailsBeforeTheNextStart) {
  muster_session* session = open(0, 2);
  const Vector v = vector_of(session, 16);
  const auto submit = on(MUSTER_LANE_SMALL);
  const muster_group world = group_of(session, "world");
  const auto what = all_reduce(world, v, 16);
  const muster_kernel fill = fill_of(v, 16);
  for (int round = 0; round < 2; ++round) {
    muster_point failing = 0;
    muster_point behind = 0;
    ASSERT_EQ(muster_collect(session, &what, &submit, &failing), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_launch(session, &fill, &submit, &behind), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_lane_reset(session, MUSTER_LANE_SMALL), MUSTER_OK);
    ASSERT_EQ(muster_group_abort(session, world), MUSTER_OK);
    ASSERT_EQ(muster_point_wait(session, failing, -1), MUSTER_ERR_ABORTED);
    muster_point fresh = 0;
    ASSERT_EQ(muster_launch(session, &fill, &submit, &fresh), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(session, fresh, -1), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_collect(session, &what, &submit, nullptr), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_group_abort(session, world), MUSTER_OK);
    muster_point last = 0;
    ASSERT_EQ(muster_launch(session, &fill, &submit, &last), MUSTER_OK) << muster_last_error();
    EXPECT_NE(muster_point_wait(session, last, -1), MUSTER_OK) << "the reset was before that failure";
    EXPECT_NE(muster_point_test(session, failing), MUSTER_OK);
    EXPECT_NE(muster_point_test(session, behind), MUSTER_OK);
    EXPECT_EQ(muster_point_test(session, fresh), MUSTER_OK);
    ASSERT_EQ(muster_lane_reset(session, MUSTER_LANE_SMALL), MUSTER_OK);
  }
}

// Goal:   memory that does not fit into the address space is given back, and is there once it fits.
TEST_F(Session, GivesBackABufferThatCouldNotBeMapped) {
#if defined(MUSTER_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own address space does not fit into a limit";
#endif
  muster_session* session = open(0, 1);
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  const rlimit little{pages * 4096 + kBytes / 2, limit.rlim_max};
  muster_buffer buffer = 0;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
    const muster_status_t wanting = muster_buffer_alloc(session, kBytes, &buffer, nullptr);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    EXPECT_EQ(wanting, MUSTER_ERR_NO_RESOURCE) << muster_last_error();
    EXPECT_THAT(muster_last_error(), testing::Not(HasSubstr("RLIMIT_NOFILE")));
  }
  void* address = nullptr;
  ASSERT_EQ(muster_buffer_alloc(session, kBytes, &buffer, &address), MUSTER_OK) << muster_last_error();
  static_cast<char*>(address)[kBytes - 1] = 1;
  std::uint64_t held = 0;
  ASSERT_EQ(muster_buffer_free(session, buffer), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(muster_counter(session, "buffer_bytes", &held), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(held, 0u);
}

// Goal:   a name is not taken by memory that could not be opened.
TEST_F(Session, GivesBackANamedBufferThatCouldNotBeOpened) {
  muster_session* session = open(0, 1);
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.bytes = 4096;
  options.name = "weights";
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  muster_buffer buffer = 0;
  const muster_status_t wanting = muster_buffer_create(session, &options, &buffer, nullptr);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(wanting, MUSTER_ERR_NO_RESOURCE);
  EXPECT_EQ(muster_buffer_create(session, &options, &buffer, nullptr), MUSTER_OK) << muster_last_error();
}

// Goal:   a process without free descriptors is told so, and its session lives on.
TEST_F(Session, SurvivesAWantOfDescriptors) {
  muster_session* session = open(0, 1);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  muster_buffer buffer = 0;
  const muster_status_t wanting = muster_buffer_alloc(session, 64, &buffer, nullptr);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(wanting, MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), HasSubstr("RLIMIT_NOFILE"));
  EXPECT_EQ(muster_buffer_alloc(session, 64, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE)
      << "the same memory, which comes only once";
  EXPECT_EQ(muster_buffer_alloc(session, 8 << 20, &buffer, nullptr), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(group_of(session, "world"), MUSTER_GROUP_SELF);
}

TEST_F(Session, TakesTheLongestTimeThereIs) {
  muster_open_options options = node_.rank("job", 0, 2);
  options.timeout_ns = INT64_MAX;
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  const Vector v = vector_of(session, 16);
  const auto what = all_reduce(group_of(session, "world"), v, 16);
  auto submit = on(MUSTER_LANE_SMALL);
  submit.deadline_ns = 200'000'000;  // the other rank never comes
  muster_point point = 0;
  ASSERT_EQ(muster_collect(session, &what, &submit, &point), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(session, point, INT64_MAX), MUSTER_ERR_TIMEOUT) << "the operation's own end";
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

TEST(SessionOpen, RefusesATimeThatIsNone) {
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.timeout_ns = -1;
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("timeout_ns -1 is negative; 0 is 60 s"));
}

TEST(SessionOpen, SaysWhereNobodyListens) {
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = "/tmp/no-such-muster.sock";
  options.job = "job";
  options.rank = 0;
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_DAEMON_LOST);
  EXPECT_THAT(muster_last_error(), HasSubstr("/tmp/no-such-muster.sock"));
  EXPECT_EQ(session, nullptr);
}

TEST(SessionOpen, NamesTheVariableThatIsEmpty) {
  setenv("MUSTER_ENDPOINT", "", 1);
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.job = "job";
  options.rank = 0;
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("MUSTER_ENDPOINT is empty"));
  unsetenv("MUSTER_ENDPOINT");
}

}  // namespace
