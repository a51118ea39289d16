#include "daemon/engine/job/engine_cores.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/support/cores.hpp"

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using muster::test::keep_process_to;
using muster::test::keep_to;
using muster::test::own_cores;

// A process that does nothing, on these cores.
class Process {
 public:
  explicit Process(const std::vector<int>& cores) : pid_(fork()) {
    if (pid_ == 0)
      for (;;) pause();
    keep_to(cores, pid_);
    pidfd_ = shm::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Process() {
    end();
    waitpid(pid_, nullptr, 0);
  }
  // Its number stays its own.
  void end() const {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  pid_t pid() const { return pid_; }
  const shm::Descriptor& pidfd() const { return pidfd_; }

 private:
  pid_t pid_;
  shm::Descriptor pidfd_;
};

// This process is the engine: its threads are those of a pool, and the test's own.
class EngineCoresTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cores_.size() < 2) GTEST_SKIP() << "with one core there is no other to keep off";
  }
  void TearDown() override {
    pool_.reset();
    keep_process_to(cores_, getpid());
  }
  control::JobSpec spec(config::CoreRule rule) const {
    control::JobSpec spec = test::small_job(2);
    spec.cores = rule;
    return spec;
  }
  std::vector<int> first() const { return {cores_.front()}; }
  std::vector<int> last() const { return {cores_.back()}; }

  // On which cores all threads of this process are; empty: not all on the same.
  static std::string where() {
    std::string all;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const auto cores = cores_of_thread(std::atoi(task.path().filename().c_str()));
      if (!cores) continue;  // it has ended
      if (!all.empty() && all != text_of(*cores)) return "";
      all = text_of(*cores);
    }
    return all;
  }

  const std::vector<int> cores_ = own_cores();
  std::unique_ptr<device::Pool> pool_ = *device::Pool::start({.workers = 3});
};

TEST_F(EngineCoresTest, AreThoseOfTheRanksForEveryThread) {
  const std::string all = where();
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  EXPECT_EQ(where(), all) << "before a rank is there";
  const Process one(first()), other(last());
  cores.attached(Rank(0), one.pid(), one.pidfd());
  EXPECT_EQ(where(), std::to_string(cores_.front()));
  cores.attached(Rank(1), other.pid(), other.pidfd());
  EXPECT_EQ(
      text_of(*cores_of_thread(0)),
      fmt::format("{}{}{}", cores_.front(), cores_.back() == cores_.front() + 1 ? "-" : ",", cores_.back()));
  cores.left(Rank(0));
  cores.left(Rank(1));
  cores.attached(Rank(1), other.pid(), other.pidfd());
  EXPECT_EQ(where(), std::to_string(cores_.back()));
}

TEST_F(EngineCoresTest, AreTheDaemonsWhereNobodyKnowsThoseOfARank) {
  const std::string all = where();
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  const Process rank(first());
  cores.attached(Rank(0), rank.pid(), rank.pidfd());
  ASSERT_EQ(where(), std::to_string(cores_.front()));
  cores.attached(Rank(1), 0, rank.pidfd());
  EXPECT_EQ(where(), all) << "a process that is not to be seen from here";
}

// Goal:   the number of a process that has ended may be that of another; whatever it may use counts for
//         nothing.
TEST_F(EngineCoresTest, AreNotThoseOfAProcessThatHasEnded) {
  const std::string all = where();
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  const Process rank(first()), gone(last());
  gone.end();
  cores.attached(Rank(1), rank.pid(), gone.pidfd());
  EXPECT_EQ(where(), all);
  cores.attached(Rank(0), rank.pid(), rank.pidfd());
  EXPECT_EQ(where(), std::to_string(cores_.front()));
}

TEST_F(EngineCoresTest, AreTheDaemonsIfSoIsTheRule) {
  const std::string all = where();
  EngineCores cores(spec(config::CoreRule::kDaemon), *pool_);
  const Process rank(first());
  cores.attached(Rank(0), rank.pid(), rank.pidfd());
  EXPECT_EQ(where(), all);
}

// Goal:   a thread that the engine starts later, a network's for example, keeps to the same cores.
TEST_F(EngineCoresTest, AreThoseOfThreadsToCome) {
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  const Process rank(last());
  cores.attached(Rank(0), rank.pid(), rank.pidfd());
  std::string seen;
  std::thread([&seen] { seen = text_of(*cores_of_thread(0)); }).join();
  EXPECT_EQ(seen, std::to_string(cores_.back()));
  EXPECT_EQ(where(), std::to_string(cores_.back()));
}

// Goal:   all workers are made with the job, however few work, and none is made or ended as ranks attach.
TEST_F(EngineCoresTest, LeaveTheNumberOfThreadsAsItIs) {
  const auto threads = [] {
    std::size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      count += task.path().empty() ? 0 : 1;
    return count;
  };
  const std::size_t all = threads();
  EXPECT_EQ(pool_->workers(), 3u);
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  const Process one(first()), other(last());
  cores.attached(Rank(0), one.pid(), one.pidfd());
  cores.attached(Rank(1), other.pid(), other.pidfd());
  EXPECT_EQ(pool_->workers(), 3u);
  EXPECT_EQ(threads(), all);
}

// Goal:   a rank that is bound only after it has attached (by its launcher, or itself) counts as it was seen;
//         the next rank to attach does not look at it again.
TEST_F(EngineCoresTest, AreThoseThatARankHadWhenItCame) {
  EngineCores cores(spec(config::CoreRule::kRanks), *pool_);
  const Process one(first()), other(first());
  cores.attached(Rank(0), one.pid(), one.pidfd());
  keep_to(last(), one.pid());
  cores.attached(Rank(1), other.pid(), other.pidfd());
  EXPECT_EQ(where(), std::to_string(cores_.front()));
  cores.left(Rank(0));
  cores.left(Rank(1));
  cores.attached(Rank(0), one.pid(), one.pidfd());
  EXPECT_EQ(where(), std::to_string(cores_.back())) << "it came again";
}

}  // namespace
}  // namespace muster::engine
