// The daemon notices a rank's end by its process, not by its socket. An engine that dies ends its own job and
// no other. T-11, T-16.
#include "tests/fault/bystander.hpp"

#include "daemon/cli/question.hpp"
#include "tests/fault/raw_client.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/memory_cgroup.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

#include <gmock/gmock.h>
#include <muster/kernels.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

using test::RawClient;
using ::testing::HasSubstr;

class Departure : public ::testing::Test {
 protected:
  void SetUp() override { node_.start(); }
  muster_session* open(const char* job, int rank, int world) {
    const muster_open_options options = node_.rank(job, rank, world);
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    return session;
  }
  // Starts an all-reduce of the world that this rank waits for.
  static muster_point reduce(muster_session* session) {
    muster_point point = 0;
    EXPECT_EQ(test::AllReduce(session, 64).start(MUSTER_LANE_ALLREDUCE, &point), MUSTER_OK);
    return point;
  }
  // The result of a wait for a point, right after a death. The wait must end within kPromised seconds.
  static muster_status_t wait_promised(muster_session* session, muster_point point) {
    const auto begin = std::chrono::steady_clock::now();
    const muster_status_t status = muster_point_wait(session, point, 10'000'000'000);
    const std::string error = muster_last_error();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    std::printf("%s after %.3f s\n", muster_status_name(status), spent.count());
    test::expect_promised(spent.count(), kPromised, "s from a death to the end of a wait");
    return status;
  }
  static constexpr double kPromised = 1;

  test::Node node_;
};

// Goal:   T-11. A trainer's death is seen though a child of it lives on with all its descriptors, its socket
//         among them.
// Method: the trainer, a child of ours, attaches, forks a child of its own, and is killed. The deadline of
//         the operation is far longer than the test waits.
TEST_F(Departure, IsSeenThoughAForkedChildKeepsTheSocket) {
  muster_session* mine = open("job", 0, 2);
  ASSERT_NE(mine, nullptr);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t trainer = fork();
  if (trainer == 0) {
    const RawClient client(node_.endpoint(), RawClient::hello_of("job", 1, 2));
    if (!client.attached) _exit(1);
    const pid_t loader = fork();
    if (loader == 0) {
      pause();
      _exit(0);
    }
    if (write(ends[1], &loader, sizeof loader) != sizeof loader) _exit(2);
    pause();
    _exit(0);
  }
  pid_t loader = 0;
  ASSERT_EQ(read(ends[0], &loader, sizeof loader), static_cast<ssize_t>(sizeof loader));
  const muster_point point = reduce(mine);
  EXPECT_EQ(muster_point_test(mine, point), MUSTER_PENDING);
  ASSERT_EQ(kill(trainer, SIGKILL), 0);
  EXPECT_EQ(wait_promised(mine, point), MUSTER_ERR_PEER_LOST);
  EXPECT_THAT(muster_last_error(), HasSubstr(fmt::format("rank 1 (pid {}) died", trainer)));
  ASSERT_EQ(kill(loader, 0), 0) << "the child lives, or this test is blind";
  RawClient successor(node_.endpoint(), RawClient::hello_of("job", 1, 2));
  EXPECT_TRUE(successor.attached) << successor.refusal.text();
  EXPECT_EQ(kill(loader, SIGKILL), 0);
  EXPECT_EQ(waitpid(trainer, nullptr, 0), trainer);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(muster_close(mine), MUSTER_OK);
}

// Goal:   T-16. An engine that ends, however it does, ends its job alone, and the job can be made anew.
// Method: signals as a fault of its own, the kernel's out-of-memory killer, and an abort would send them,
//         while another job works.
TEST_F(Departure, OfAnEngineEndsItsJobAlone) {
  std::vector<std::unique_ptr<test::Bystanders>> bystanders;
  for (const char* job : {"one", "two", "three"}) {
    bystanders.push_back(std::make_unique<test::Bystanders>(
        node_, test::Bystanders::Options{.job = job, .count = 1024, .runs = true}));
  }
  auto innocent = test::engines();
  std::sort(innocent.begin(), innocent.end());
  ASSERT_EQ(innocent.size(), bystanders.size());
  for (const int signal : {SIGSEGV, SIGKILL, SIGABRT}) {
    SCOPED_TRACE(signal);
    muster_session* session = open("victim", 0, 2);
    ASSERT_NE(session, nullptr);
    const muster_point point = reduce(session);
    const auto all = test::engines();
    ASSERT_EQ(all.size(), innocent.size() + 1);
    const pid_t engine = *std::find_if(all.begin(), all.end(), [&](pid_t pid) {
      return !std::binary_search(innocent.begin(), innocent.end(), pid);
    });
    ASSERT_EQ(kill(engine, signal), 0);
    EXPECT_EQ(wait_promised(session, point), MUSTER_ERR_DAEMON_LOST);
    EXPECT_EQ(muster_close(session), MUSTER_OK);
    for (int i = 0; i < 500 && test::engines().size() > innocent.size(); ++i) usleep(10'000);
    EXPECT_THAT(test::engines(), ::testing::UnorderedElementsAreArray(innocent));
    for (const auto& each : bystanders) each->await(5);
  }
  for (const auto& each : bystanders) each->stop();
}

// Goal:   T-16. An engine that the kernel kills for want of memory, in the middle of a kernel, ends its job
//         alone.
// Method: a rank takes the pages away from memory that it has given; what a worker writes there then counts
//         for the engine, which is in a cgroup that has room for an eighth of it.
TEST_F(Departure, OfAnEngineWithoutMemoryEndsItsJobAlone) {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  const test::MemoryCgroup cgroup("worker", kBytes / 8);
  if (!cgroup.valid()) GTEST_SKIP() << "no cgroup with a memory limit can be made here";
  test::Bystanders bystanders(node_);
  const auto innocent = test::engines();
  ASSERT_EQ(innocent.size(), 1u);
  muster_session* session = open("victim", 0, 1);
  ASSERT_NE(session, nullptr);
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.bytes = kBytes;
  options.memory = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(options.memory, static_cast<off_t>(kBytes)), 0);
  ASSERT_EQ(fcntl(options.memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  muster_buffer buffer = 0;
  ASSERT_EQ(muster_buffer_create(session, &options, &buffer, nullptr), MUSTER_OK) << muster_last_error();
  for (const pid_t engine : test::engines()) {
    if (engine == innocent[0]) continue;
    ASSERT_TRUE(cgroup.take(engine));
  }
  ASSERT_EQ(fallocate(options.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  ::close(options.memory);
  const muster_kernel fill = muster_fill(muster_view1(buffer, 0, MUSTER_F32, kBytes / sizeof(float)), 1.0);
  muster_submit submit = MUSTER_SUBMIT_INIT;
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(session, point, 30'000'000'000), MUSTER_ERR_DAEMON_LOST);
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  bystanders.await(5);
  EXPECT_EQ(test::engines(), innocent);
}

// Goal:   a client that only polls, or only starts, notices a dead engine too, although that writes no
//         verdict.
TEST_F(Departure, OfAnEngineIsHeardByThosePolling) {
  for (const bool any : {false, true}) {
    muster_session* session = open("victim", 0, 2);
    ASSERT_NE(session, nullptr);
    const muster_point point = reduce(session);
    const auto engines = test::engines();
    ASSERT_EQ(engines.size(), 1u);
    ASSERT_EQ(kill(engines[0], SIGKILL), 0);
    const muster_status_t undecided = any ? MUSTER_ERR_WAIT_TIMEOUT : MUSTER_PENDING;
    muster_status_t status = undecided;
    std::size_t index = 0;
    for (int i = 0; i < 1000 && status == undecided; ++i) {
      usleep(10'000);
      status = any ? muster_point_wait_any(session, &point, 1, 0, &index) : muster_point_test(session, point);
    }
    EXPECT_EQ(status, MUSTER_ERR_DAEMON_LOST) << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }

  muster_session* session = open("starter", 0, 1);
  ASSERT_NE(session, nullptr);
  const test::AllReduce sum(session, 64, MUSTER_GROUP_SELF);
  ASSERT_EQ(sum.start_and_wait(MUSTER_LANE_COPY), MUSTER_OK);
  const auto again = test::engines();
  ASSERT_EQ(again.size(), 1u);
  ASSERT_EQ(kill(again[0], SIGKILL), 0);
  muster_point last = 0;
  muster_status_t status = MUSTER_OK;
  for (int i = 0; i < 10'000 && (status == MUSTER_OK || status == MUSTER_ERR_BUSY); ++i) {
    if (status == MUSTER_ERR_BUSY) usleep(1'000);
    status = sum.start(MUSTER_LANE_COPY, &last);
  }
  EXPECT_EQ(status, MUSTER_ERR_DAEMON_LOST) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   the end of a job reaches who waits for a member, and who waits for what was to follow: they have no
//         group to go on with and no lane to reset.
// Input:  a run, a start, a kernel behind the start, and one behind a timeline of its rank's own, which is in
//         no group; rank 0 never comes.
TEST_F(Departure, OfAJobIsToldToWhoWaitsForAMember) {
  enum class Way { kRun, kStart, kBehindTheStart, kBehindATimeline };
  const auto wait_for_rank_0 = [](muster_session* session, Way way, std::atomic<bool>& waits) {
    const test::AllReduce sum(session, 64);
    if (way == Way::kRun) {
      waits = true;
      return muster_plan_run(session, sum.plan, 0);
    }
    muster_point point = 0;
    EXPECT_EQ(sum.start(MUSTER_LANE_ALLREDUCE, &point), MUSTER_OK) << muster_last_error();
    muster_buffer buffer = 0;
    void* address = nullptr;
    EXPECT_EQ(muster_buffer_alloc(session, 64, &buffer, &address), MUSTER_OK) << muster_last_error();
    const muster_kernel fill = muster_fill(muster_view1(buffer, 0, MUSTER_F32, 16), 1.0);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COMPUTE;
    submit.wait_count = 1;
    submit.waits[0] = point;
    if (way == Way::kBehindATimeline) {
      std::uint32_t timeline = 0;
      EXPECT_EQ(muster_timeline_create(session, &timeline), MUSTER_OK) << muster_last_error();
      submit.waits[0] = muster_timeline_point(timeline, 1);
    }
    if (way != Way::kStart) {
      EXPECT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
    }
    waits = true;
    return muster_point_wait(session, point, -1);
  };
  for (const Way way : {Way::kRun, Way::kStart, Way::kBehindTheStart, Way::kBehindATimeline}) {
    const std::string job = fmt::format("waiting{}", static_cast<int>(way));
    muster_session* rank_0 = open(job.c_str(), 0, 2);
    std::atomic<bool> waits{false};
    std::thread rank_1([&] {
      muster_session* session = open(job.c_str(), 1, 2);
      EXPECT_EQ(wait_for_rank_0(session, way, waits), MUSTER_ERR_JOB_ENDED) << muster_last_error();
      EXPECT_THAT(muster_last_error(),
                  HasSubstr(fmt::format("job {} was ended: by user {} with muster end", job, getuid())));
      muster_close(session);
    });
    while (!waits) std::this_thread::yield();
    const auto answer =
        cli::ask({node_.endpoint()}, {{"command", "job_destroy"}, {"job", job}, {"by", "muster end"}});
    EXPECT_TRUE(answer) << answer.error().text;
    rank_1.join();
    muster_close(rank_0);
  }
}

// Goal:   a client that comes while the daemon ends is told so, with the status of an end.
TEST_F(Departure, OfTheDaemonShutsItsDoor) {
  muster_session* session = open("leaving", 0, 2);
  const auto answer = cli::ask({node_.endpoint()}, {{"command", "shutdown"}, {"drain", true}});
  EXPECT_TRUE(answer) << answer.error().text;
  const muster_open_options options = node_.rank("leaving", 1, 2);
  muster_session* late = nullptr;
  EXPECT_EQ(muster_open(&options, &late), MUSTER_ERR_JOB_ENDED) << muster_last_error();
  EXPECT_THAT(muster_last_error(), HasSubstr("shutting down"));
  muster_close(session);
}

// Goal:   each client in a job that is ended gets that end, whatever it was doing, and no loss.
// Method: one that runs, one that starts and waits, one that asks; over and over, since the engine goes at
//         once.
TEST_F(Departure, OfAnEngineThatEndsItsJobIsNoLoss) {
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = MUSTER_GROUP_SELF;
  const auto do_one = [&barrier](int rank, muster_session* session, const test::AllReduce& sum) {
    if (rank == 0) return muster_run(session, &barrier, 0);
    if (rank == 1) return sum.start_and_wait(MUSTER_LANE_COPY);
    muster_buffer buffer = 0;
    void* address = nullptr;
    const muster_status_t status = muster_buffer_alloc(session, 64, &buffer, &address);
    return status == MUSTER_OK ? muster_buffer_free(session, buffer) : status;
  };
  for (int round = 0; round < 10; ++round) {
    const std::string job = fmt::format("ended{}", round);
    constexpr int kWorld = 3;
    std::atomic<int> working{0};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kWorld; ++rank)
      ranks.emplace_back([&, rank] {
        muster_session* session = open(job.c_str(), rank, kWorld);
        const test::AllReduce sum(session, 64, MUSTER_GROUP_SELF);
        ++working;
        muster_status_t status = MUSTER_OK;
        while (status == MUSTER_OK) status = do_one(rank, session, sum);
        EXPECT_EQ(status, MUSTER_ERR_JOB_ENDED) << "rank " << rank << ": " << muster_last_error();
        muster_close(session);
      });
    while (working < kWorld) std::this_thread::yield();
    const auto answer = cli::ask({node_.endpoint()}, {{"command", "job_destroy"}, {"job", job}});
    EXPECT_TRUE(answer) << answer.error().text;
    for (std::thread& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace muster
