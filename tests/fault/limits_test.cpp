// The limits of a job, as its ranks meet them. Each refusal names the limit, the need and the remedy, and
// leaves nothing behind. Also the effect on other jobs of a neighbour at full speed, a full disk, or too
// little memory. T-09, T-33, T-34, T-37.
#include "tests/fault/bystander.hpp"

#include "tests/fault/captured_errors.hpp"
#include "tests/fault/raw_client.hpp"
#include "tests/fault/rounds.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/memory_cgroup.hpp"

#include "api/base/log.hpp"
#include "api/shm/headroom.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <muster/kernels.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

namespace muster {
namespace {

using test::RawClient;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Limits : public ::testing::Test {
 protected:
  muster_status_t open(const char* job, int rank, int world, muster_session** session) {
    const muster_open_options options = node_.rank(job, rank, world);
    return muster_open(&options, session);
  }
  muster_session* opened(const char* job, int rank, int world) {
    muster_session* session = nullptr;
    EXPECT_EQ(open(job, rank, world, &session), MUSTER_OK) << muster_last_error();
    return session;
  }
  static void close(muster_session* session) { EXPECT_EQ(muster_close(session), MUSTER_OK); }
  static muster_buffer buffer_of(muster_session* session, std::uint64_t bytes) {
    muster_buffer buffer = 0;
    EXPECT_EQ(muster_buffer_alloc(session, bytes, &buffer, nullptr), MUSTER_OK) << muster_last_error();
    return buffer;
  }
  static muster_plan fill_plan(muster_session* session, muster_buffer buffer, double value) {
    const muster_kernel fill = muster_fill(muster_view1(buffer, 0, MUSTER_F32, 4), value);
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_kernel(session, &fill, &plan), MUSTER_OK) << muster_last_error();
    return plan;
  }

  test::Node node_;
};

TEST_F(Limits, OfBuffersAndPlansAreNamedAndGivenBack) {
  node_.options.job_defaults.buffers_max = 3;
  node_.options.job_defaults.plans_max = 2;
  node_.start();
  muster_session* session = opened("job", 0, 1);
  std::vector<muster_buffer> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(buffer_of(session, 64));
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, 64, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("limits.buffers_per_rank_max"), HasSubstr("3"), HasSubstr("free")));
  std::vector<muster_plan> plans;
  for (int i = 0; i < 2; ++i) plans.push_back(fill_plan(session, buffers[0], i));
  const muster_kernel fill = muster_fill(muster_view1(buffers[0], 0, MUSTER_F32, 4), 9.0);
  muster_plan plan = 0;
  EXPECT_EQ(muster_plan_kernel(session, &fill, &plan), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("limits.plans_per_rank_max"), HasSubstr("2"), HasSubstr("destroy")));
  EXPECT_EQ(muster_plan_destroy(session, plans[0]), MUSTER_OK);
  EXPECT_EQ(muster_plan_kernel(session, &fill, &plan), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_buffer_free(session, buffers[1]), MUSTER_OK);
  EXPECT_EQ(muster_buffer_alloc(session, 64, &buffer, nullptr), MUSTER_OK) << muster_last_error();
  close(session);
}

TEST_F(Limits, OfTheArenaNamesNeedAndLimit) {
  node_.options.job_defaults.arena_bytes_max = std::uint64_t{8} << 20;
  node_.start();
  muster_session* session = opened("job", 0, 1);
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, (8 << 20) + 1, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("limits.arena_per_rank_max"), HasSubstr("8388609"), HasSubstr("8388608")));
  const muster_buffer first = buffer_of(session, 6 << 20);
  EXPECT_EQ(muster_buffer_alloc(session, 6 << 20, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("limits.arena_per_rank_max"), HasSubstr("free buffers")));
  EXPECT_EQ(muster_buffer_free(session, first), MUSTER_OK);
  buffer_of(session, 6 << 20);
  close(session);
}

TEST_F(Limits, OfSessionsAndJobsHoldForAllUsersTogether) {
  node_.options.sessions_max = 2;
  node_.options.jobs_max = 2;
  node_.start();
  muster_session* first = opened("one", 0, 1);
  muster_session* second = opened("two", 0, 1);
  muster_session* third = nullptr;
  EXPECT_EQ(open("three", 0, 1, &third), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("limits.sessions_max"), HasSubstr("2")));
  close(second);
  // The engine tells of a departure a moment later, and whoever comes for the seat waits for that.
  second = opened("two", 0, 1);
  close(first);
  muster_status_t status = MUSTER_OK;
  for (int i = 0; i < 500; ++i) {
    status = open("three", 0, 1, &third);
    if (status == MUSTER_OK) break;
    EXPECT_THAT(muster_last_error(), HasSubstr("limits.sessions_max"));
    usleep(10'000);
  }
  EXPECT_EQ(status, MUSTER_OK) << "the job without a rank makes room: " << muster_last_error();
  close(third);
  close(second);
}

// Goal:   one job cannot take the node by its size: its memory is made before anybody attaches.
TEST_F(Limits, OfRanksIsAskedBeforeAJobIsMade) {
  node_.options.ranks_per_job_max = 4;
  node_.start();
  muster_session* session = nullptr;
  EXPECT_EQ(open("large", 0, 5, &session), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("limits.ranks_per_job_max"), HasSubstr("5 ranks"), HasSubstr("4")));
  EXPECT_TRUE(test::engines().empty());
  close(opened("small", 0, 4));
}

// T-34. Goal: imports leave the engine the descriptors that another rank needs to attach.
TEST_F(Limits, OfDescriptorsLeavesRoomForTheOtherRanks) {
  constexpr rlim_t kEngineFiles = 128;
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few{kEngineFiles, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  node_.start();
  muster_session* first = opened("job", 0, 2);  // the engine has the limit of this moment
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);

  const int file = memfd_create("import", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.bytes = 4096;
  options.memory = file;
  std::vector<muster_buffer> buffers(1);
  while (buffers.size() < 2 * kEngineFiles &&
         muster_buffer_create(first, &options, &buffers.back(), nullptr) == MUSTER_OK)
    buffers.emplace_back();
  buffers.pop_back();
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("open-files limit of 128"), HasSubstr("LimitNOFILE")));
  ASSERT_FALSE(buffers.empty());

  muster_session* second = opened("job", 1, 2);
  EXPECT_EQ(muster_buffer_free(first, buffers.back()), MUSTER_OK);
  buffer_of(second, 64);
  close(second);
  close(first);
  ::close(file);
}

// T-33. A buffer that no machine holds is refused with numbers, before the kernel has to choose whom to kill.
TEST_F(Limits, OfTheMachineIsAskedBeforeTheKernelKills) {
  node_.options.job_defaults.arena_bytes_max = std::uint64_t{1} << 46;
  node_.options.memory_max = std::uint64_t{1} << 47;  // whatever the machine has
  node_.start();
  muster_session* session = opened("job", 0, 1);
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, std::uint64_t{1} << 39, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("549755813888"), HasSubstr("leaves")));
  buffer_of(session, 4096);
  close(session);
}

// Goal:   without a word in the configuration, jobs leave a quarter of the machine to others.
TEST_F(Limits, OfMemoryIsPartOfTheMachinesUnlessItIsSaid) {
  const std::uint64_t capacity = shm::memory_capacity();
  node_.options.job_defaults.arena_bytes_max = std::uint64_t{1} << 46;
  node_.start();
  muster_session* session = opened("job", 0, 1);
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, capacity / 5 * 4, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("limits.memory_max"), HasSubstr(fmt::format("{}", capacity / 4 * 3))));
  close(session);
}

// Goal:   T-33. The limit of the cgroup that an engine is in is asked before the kernel has to kill it.
// Method: a real one; half of it is granted, and twice of it is not.
TEST_F(Limits, OfItsCgroupAreAskedBeforeTheKernelKills) {
  const test::MemoryCgroup cgroup("limit", std::uint64_t{64} << 20);
  if (!cgroup.valid()) GTEST_SKIP() << "no cgroup with a memory limit can be made here";
  node_.start();
  muster_session* session = opened("job", 0, 1);
  const auto engines = test::engines();
  ASSERT_EQ(engines.size(), 1u);
  ASSERT_TRUE(cgroup.take(engines[0]));
  muster_buffer buffer = 0;
  EXPECT_EQ(muster_buffer_alloc(session, std::uint64_t{128} << 20, &buffer, nullptr), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("134217728"), HasSubstr(cgroup.limit()),
                                         HasSubstr("raise the memory limit of the cgroup")));
  const muster_plan plan = fill_plan(session, buffer_of(session, std::uint64_t{32} << 20), 1.0);
  EXPECT_EQ(muster_plan_destroy(session, plan), MUSTER_OK);
  EXPECT_EQ(test::engines(), engines) << "it lives";
  close(session);
}

// T-37. A log that cannot be written costs lines, nothing else.
TEST_F(Limits, OfTheDiskCostLogLinesAlone) {
  const int kept = dup(2);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  dup2(full, 2);
  log::configure(log::Level::kDebug, log::Format::kText);
  node_.start();
  for (int i = 0; i < test::rounds(5); ++i) {
    RawClient client(node_.endpoint(), RawClient::hello_of("job", 0, 1));
    EXPECT_TRUE(client.attached) << client.refusal.text();
    EXPECT_TRUE(shm::send_message(client.socket, std::as_bytes(std::span("nonsense"))).ok());
    EXPECT_TRUE(client.ended());
  }
  log::configure(log::Level::kOff, log::Format::kText);
  dup2(kept, 2);
  ::close(kept);
  ::close(full);
}

// Goal:   T-37. Reports that find no room cost themselves alone, and leave nothing half written.
// Method: a file system of 64 KiB, filled to its last byte, where reports are to go; deadlines pass one after
//         the other, each with its verdict, and then the job works.
TEST_F(Limits, OfTheReportsDirectoryCostReportsAlone) {
  std::string folder = ::testing::TempDir() + "/muster-full-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  // In a mount namespace of this process, so that it goes with it however it ends.
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("muster-test", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
    rmdir(folder.c_str());
    GTEST_SKIP() << "no file system can be mounted here: " << std::strerror(errno);
  }
  {
    std::ofstream filler(folder + "/filler");
    for (int i = 0; i < 128 && filler; ++i) filler << std::string(4096, 'x') << std::flush;
    EXPECT_FALSE(filler) << "there is still room";
  }
  node_.options.job_defaults.reports_directory = folder;
  node_.options.job_defaults.deadline = std::chrono::milliseconds(100);
  node_.start();
  muster_session* one = opened("job", 0, 2);
  muster_session* two = opened("job", 1, 2);
  const test::AllReduce first(one, 16);
  const test::AllReduce second(two, 16);
  for (int i = 0; i < test::rounds(5); ++i) {
    EXPECT_EQ(first.start_and_wait(MUSTER_LANE_COPY), MUSTER_ERR_TIMEOUT);
    EXPECT_THAT(muster_last_error(), HasSubstr("missing rank 1")) << "the verdict needs no file";
    EXPECT_EQ(muster_lane_reset(one, MUSTER_LANE_COPY), MUSTER_OK);
    EXPECT_EQ(second.start_and_wait(MUSTER_LANE_COPY), MUSTER_ERR_TIMEOUT) << "it hears what it missed";
    EXPECT_EQ(muster_lane_reset(two, MUSTER_LANE_COPY), MUSTER_OK);
  }
  std::thread other([&] { EXPECT_EQ(second.start_and_wait(MUSTER_LANE_COPY), MUSTER_OK); });
  EXPECT_EQ(first.start_and_wait(MUSTER_LANE_COPY), MUSTER_OK) << muster_last_error();
  other.join();
  close(one);
  close(two);
  for (const auto& file : std::filesystem::directory_iterator(folder))
    EXPECT_NE(file.path().extension(), ".json") << "half a report";
  EXPECT_EQ(umount2(folder.c_str(), MNT_DETACH), 0);
  rmdir(folder.c_str());
}

// Goal:   a folder of reports that is removed while jobs run is named as what is missing, not the report.
TEST_F(Limits, OfTheReportsDirectoryNameTheFolderThatIsGone) {
  const test::CapturedErrors errors;
  const std::string folder = ::testing::TempDir() + "/muster-no-reports";
  node_.options.job_defaults.reports_directory = folder;
  node_.options.job_defaults.deadline = std::chrono::milliseconds(100);
  node_.start();
  muster_session* one = opened("job", 0, 2);
  muster_session* two = opened("job", 1, 2);
  EXPECT_EQ(test::AllReduce(one, 16).start_and_wait(MUSTER_LANE_COPY), MUSTER_ERR_TIMEOUT);
  const std::string why =
      ".hang.json cannot be written: there is no folder " + folder + "; make it first, or name another place";
  for (int i = 0; i < 500 && errors.text().find(why) == std::string::npos; ++i) usleep(10'000);
  EXPECT_THAT(errors.text(),
              AllOf(HasSubstr("job job: log.reports_directory: " + folder + "/job-"), HasSubstr(why)));
  close(one);
  close(two);
}

// The work of one job that takes all it can get. Ends with this object.
class Flood {
 public:
  Flood() = default;
  ~Flood() { stop(); }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  // `work` goes on until this is stopping(), and calls running() once it has begun.
  void add(const std::function<void(Flood&)>& work) {
    threads_.emplace_back([this, work] { work(*this); });
  }
  bool stopping() const { return stopping_; }
  void running() { running_ = true; }
  void await() const {
    while (!running_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void stop() {
    stopping_ = true;
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

 private:
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// Goal:   T-09. A job that asks for all it can get slows its neighbour down and does no more to it.
// Method: a neighbour that does an operation every 10 ms on each path, as one that trains does, and one job
//         more: a rank that keeps four lanes full, and makes and destroys plans and buffers meanwhile; then
//         two ranks that run one all-reduce after the other. The neighbour has a core of its own: who gets
//         one that both may use is for the kernel to say. Windows with and without the flood in turn, so that
//         what else the machine does is in both. Results are checked always, times where they are promised.
class Neighbour : public Limits {
 protected:
  test::FirstCoreLeft cores_;  // before the node starts

  static constexpr double kPromisedRatio = 2;  // of the p99 beside the flood to that without
  static constexpr auto kPause = std::chrono::milliseconds(10);
  static constexpr auto kWindow = std::chrono::milliseconds(500);

  void keeps_apart(const std::function<void(Flood&)>& flood) {
    test::Bystanders bystanders(
        node_, {.job = "beside", .runs = true, .operations = 1, .pause = kPause, .core = cores_.left()});
    for (int window = 0; window < 2 * test::rounds(3); ++window) {
      Flood of_this_window;
      if (window % 2 == 1) {
        flood(of_this_window);
        of_this_window.await();
      }
      bystanders.storm(window % 2 == 1);
      const auto end = std::chrono::steady_clock::now() + kWindow;
      std::this_thread::sleep_until(end);
      bystanders.storm(false);
    }
    bystanders.stop();
    bystanders.expect_undisturbed(kPromisedRatio, "p99 beside a flood to p99 alone");
  }
  void start_all_the_time(Flood& flood) {
    muster_session* session = opened("storm", 0, 1);
    const muster_plan plan = fill_plan(session, buffer_of(session, 64), 1.0);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    flood.running();
    for (std::uint32_t i = 0; !flood.stopping(); ++i) {
      submit.lane = i % 4;
      const muster_status_t status = muster_plan_start(session, plan, &submit, nullptr);
      EXPECT_TRUE(status == MUSTER_OK || status == MUSTER_ERR_BUSY) << muster_last_error();
      if (i % 64 != 0) continue;
      const muster_buffer buffer = buffer_of(session, 1 << 16);
      EXPECT_EQ(muster_plan_destroy(session, fill_plan(session, buffer, 2.0)), MUSTER_OK);
      EXPECT_EQ(muster_buffer_free(session, buffer), MUSTER_OK);
    }
    close(session);
  }
};

TEST_F(Neighbour, OfOneThatStartsAllTheTimeIsKeptApart) {
  node_.options.job_defaults.workers = 1;
  node_.start();
  keeps_apart([this](Flood& flood) { flood.add([this](Flood& self) { start_all_the_time(self); }); });
}

TEST_F(Neighbour, OfOneThatRunsAllTheTimeIsKeptApart) {
  node_.options.job_defaults.workers = 1;
  node_.start();
  keeps_apart([this](Flood& flood) {
    flood.add([this](Flood& self) {
      test::Bystanders runners(node_, {.job = "storm", .runs = true});
      self.running();
      while (!self.stopping()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      runners.stop();
    });
  });
}

}  // namespace
}  // namespace muster
