// The next run removes the remains of killed runs, and nothing else.
#include "daemon/cli/run/stale_runs.hpp"

#include "api/shm/peer.hpp"
#include "daemon/supervisor/listener/directory_lock.hpp"
#include "tests/daemon/cli/program.hpp"

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::test {
namespace {

using cli::remove_stale_runs;

class StaleRuns : public ::testing::Test {
 protected:
  std::string make(const std::string& name) const {
    const std::string path = home_.path() + "/" + name;
    std::filesystem::create_directory(path);
    return path;
  }
  std::string make_run() const {
    const std::string path = cli::fresh_run_directory(home_.path());
    std::filesystem::create_directory(path);
    return path;
  }
  std::size_t left() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(home_.path()), {}));
  }
  Start run_of(const std::string& script) const {
    return {{program("muster"), "run", "--private", "-n", "1", "--", "sh", "-c", script},
            {"XDG_RUNTIME_DIR=" + home_.path()},
            {}};
  }
  // The process of that name that another one has started; 0: none.
  static pid_t child_of(pid_t parent, const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
    for (pid_t pid = 0; file >> pid;) {
      std::string comm;
      std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), comm);
      if (comm == name) return pid;
    }
    return 0;
  }

  const Folder home_;
};

TEST_F(StaleRuns, AreGoneAfterTheNextRun) {
  {
    Running killed(run_of("echo here; sleep 600"));
    ASSERT_TRUE(killed.printed("here")) << killed.err();
    const pid_t daemon = child_of(killed.pid(), "musterd");
    ASSERT_NE(daemon, 0);
    const shm::Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, daemon, 0)));
    ASSERT_TRUE(pidfd.valid());
    kill(daemon, SIGKILL);
    killed.signal(SIGKILL);
    killed.wait();
    while (!shm::has_ended(pidfd))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it holds locks
  }
  EXPECT_EQ(left(), 1u) << "nobody was left to remove it";
  const Ran next = run(run_of("true"));
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_TRUE(home_.empty());
}

// Goal: a run on a standing daemon, which starts none, cleans up as well.
TEST_F(StaleRuns, AreGoneAfterARunThatJoinsADaemon) {
  const Daemon daemon;
  make_run();
  const Ran joins = run({{program("muster"), "run", "--endpoint", daemon.socket(), "-n", "1", "--", "true"},
                         {"XDG_RUNTIME_DIR=" + home_.path()},
                         {}});
  EXPECT_EQ(joins.code, 0) << joins.err;
  EXPECT_TRUE(home_.empty());
}

// Goal: runs that live do not use up what one sweep may remove.
TEST_F(StaleRuns, AreCountedAsTheyAreRemoved) {
  std::vector<std::string> full;
  for (int i = 0; i < cli::kStaleRunsMax; ++i) {
    full.push_back(make_run());
    std::ofstream(full.back() + "/precious") << "words";
  }
  for (int i = 0; i < 8; ++i) make_run();
  remove_stale_runs(home_.path());
  EXPECT_EQ(left(), full.size());
}

TEST_F(StaleRuns, ALauncherThatIsKilledLeavesADaemonThatCleansUp) {
  Running killed(run_of("echo here; sleep 600"));
  ASSERT_TRUE(killed.printed("here")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  for (int waited = 0; waited < kPatienceMs && !home_.empty(); ++waited) usleep(1000);
  EXPECT_TRUE(home_.empty());
}

TEST_F(StaleRuns, ARunThatGoesOnIsNotTouched) {
  const std::string go_on = home_.path() + "/go_on";
  Running first(run_of("echo here; while [ ! -e " + go_on + " ]; do sleep 0.01; done; " + program("muster") +
                       " status --endpoint $MUSTER_ENDPOINT"));
  ASSERT_TRUE(first.printed("here")) << first.err();
  EXPECT_EQ(run(run_of("true")).code, 0);
  remove_stale_runs(home_.path());
  EXPECT_EQ(left(), 1u);
  std::ofstream(go_on) << "";
  const Ran ran = first.wait();
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
}

TEST_F(StaleRuns, NothingElseIsTouched) {
  const std::string stale = make_run(), held = make_run(), full = make_run();
  const auto lock = supervisor::DirectoryLock::take(held);
  ASSERT_TRUE(lock && lock->held());
  std::ofstream(full + "/precious") << "words";
  std::ofstream(full + "/musterd.sock") << "no socket";
  const std::string other = make("muster-run-of-somebody"), test = make("muster-test-abcdef");
  const std::string elsewhere = make("elsewhere");
  const std::string link = cli::fresh_run_directory(home_.path());
  std::filesystem::create_directory_symlink(elsewhere, link);
  remove_stale_runs(home_.path());
  EXPECT_FALSE(std::filesystem::exists(stale));
  for (const std::string& path :
       {held, full + "/precious", full + "/musterd.sock", other, test, elsewhere, link})
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  remove_stale_runs(home_.path() + "/nowhere");
}

TEST_F(StaleRuns, OfOtherUsersStay) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a directory of another user";
  const std::string path = make_run();
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  remove_stale_runs(home_.path());
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace muster::test
