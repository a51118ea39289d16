// Counters and traces.
#include <muster/kernels.h>

#include "tests/api/client/session_fixture.hpp"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using muster::test::fill_of;
using muster::test::on;
using muster::test::Session;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::HasSubstr;

TEST_F(Session, CountsAndTraces) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 8);
  const muster_kernel fill = fill_of(v, 8);
  const auto submit = on(MUSTER_LANE_COMPUTE);
  ASSERT_EQ(muster_trace_begin(session), MUSTER_OK);
  muster_point point = 0;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK);
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK);
  std::uint64_t steps = 0;
  ASSERT_EQ(muster_counter(session, "steps_completed", &steps), MUSTER_OK);
  EXPECT_EQ(steps, 100u);
  EXPECT_EQ(muster_counter(session, "no_such", &steps), MUSTER_ERR_NOT_FOUND);
  const std::string path = ::testing::TempDir() + "muster-trace-" + std::to_string(getpid()) + ".json";
  ASSERT_EQ(muster_trace_end(session, path.c_str()), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(muster_trace_begin(session), MUSTER_OK);
  EXPECT_EQ(muster_trace_end(session, "/no/such/folder/x.json"), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(
      muster_last_error(),
      HasSubstr("/no/such/folder/x.json cannot be written: there is no folder /no/such/folder; make it"));
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(muster_trace_begin(session), MUSTER_OK);
  EXPECT_EQ(muster_trace_end(session, path.c_str()), MUSTER_ERR_NO_RESOURCE) << "a folder has the name";
  EXPECT_NE(access((path + ".partial").c_str(), F_OK), 0) << "nothing is left beside it";
  EXPECT_EQ(rmdir(path.c_str()), 0);
}

// Goal:   a trace to a device, or through a link, leaves those what they are.
TEST_F(Session, WritesATraceIntoWhatIsNoFile) {
  muster_session* session = open(0, 1);
  const std::string base = ::testing::TempDir() + "muster-trace-" + std::to_string(getpid());
  const std::string link = base + ".link";
  const std::string target = base + ".target";
  std::ofstream(target) << "before";
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  ASSERT_EQ(muster_trace_begin(session), MUSTER_OK);
  ASSERT_EQ(muster_trace_end(session, link.c_str()), MUSTER_OK) << muster_last_error();
  struct stat facts {};
  ASSERT_EQ(lstat(link.c_str(), &facts), 0);
  EXPECT_TRUE(S_ISLNK(facts.st_mode));
  std::string first;
  std::getline(std::ifstream(target), first);
  EXPECT_THAT(first, ::testing::StartsWith("{")) << "the trace is behind the link";
  EXPECT_EQ(unlink(link.c_str()), 0);
  EXPECT_EQ(unlink(target.c_str()), 0);
  ASSERT_EQ(symlink("/dev/full", link.c_str()), 0);
  ASSERT_EQ(muster_trace_begin(session), MUSTER_OK);
  EXPECT_EQ(muster_trace_end(session, link.c_str()), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), HasSubstr("No space left on device"));
  ASSERT_EQ(lstat(link.c_str(), &facts), 0);
  EXPECT_TRUE(S_ISLNK(facts.st_mode));
  EXPECT_EQ(unlink(link.c_str()), 0);
}

// Goal:   nobody clears or takes the recording of another rank, and one whose owner has left is in nobody's
//         way.
TEST_F(Session, HasOneRecordingAtATimeWhichIsWhoseBeganIt) {
  muster_session* owner = open(0, 2);
  muster_session* other = open(1, 2);
  const std::string path = ::testing::TempDir() + "muster-trace-" + std::to_string(getpid()) + ".json";
  EXPECT_EQ(muster_trace_end(owner, path.c_str()), MUSTER_ERR_STATE);
  EXPECT_THAT(muster_last_error(), HasSubstr("no recording of job job is on"));
  ASSERT_EQ(muster_trace_begin(owner), MUSTER_OK);
  EXPECT_EQ(muster_trace_begin(owner), MUSTER_ERR_BUSY);
  EXPECT_EQ(muster_trace_begin(other), MUSTER_ERR_BUSY);
  EXPECT_THAT(muster_last_error(), HasSubstr("is on already, of rank 0"));
  EXPECT_EQ(muster_trace_end(other, path.c_str()), MUSTER_ERR_STATE);
  EXPECT_THAT(muster_last_error(), HasSubstr("of rank 0, not of rank 1"));
  ASSERT_EQ(muster_trace_end(owner, path.c_str()), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(muster_trace_begin(owner), MUSTER_OK);
  close(owner);
  EXPECT_EQ(muster_trace_begin(other), MUSTER_OK) << muster_last_error();
}

}  // namespace
