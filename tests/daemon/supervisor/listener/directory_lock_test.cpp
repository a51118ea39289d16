#include "daemon/supervisor/listener/directory_lock.hpp"

#include "api/base/log.hpp"
#include "tests/support/folder.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

class DirectoryLocks : public ::testing::Test {
 protected:
  std::string place() const { return folder_.path() + "/run"; }
  static int in_another_process(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  // The name, as anybody may take it.
  shm::Descriptor squat() const {
    shm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "muster-" + *DirectoryLock::name_of(place());
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(socket.get(), 1), 0);
    return socket;
  }

  test::Folder folder_;
};

TEST_F(DirectoryLocks, HaveOneHolderWhoIsNamed) {
  auto first = DirectoryLock::take(place());
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_TRUE(first->held());
  for (int i = 0; i < 3; ++i) {
    const auto second = DirectoryLock::take(place(), 1);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kDuplicate);
    EXPECT_THAT(second.error().message(), HasSubstr("process " + std::to_string(getpid())));
    EXPECT_THAT(second.error().message(), HasSubstr(place()));
  }
  EXPECT_FALSE(DirectoryLock::take_if_free(place()));
  EXPECT_EQ(DirectoryLock::holder_of(place())->pid, getpid());
  EXPECT_TRUE(DirectoryLock::take(folder_.path() + "/other", 1)->held()) << "another place";
  { const DirectoryLock gone = *std::move(first); }
  EXPECT_FALSE(DirectoryLock::holder_of(place()));
  EXPECT_TRUE(DirectoryLock::take_if_free(place()));
}

TEST_F(DirectoryLocks, KnowAPlaceHoweverItIsWritten) {
  std::filesystem::create_directory_symlink(folder_.path(), folder_.path() + "/link");
  EXPECT_EQ(*DirectoryLock::name_of(place()), *DirectoryLock::name_of(folder_.path() + "/link/run"));
  EXPECT_NE(*DirectoryLock::name_of(place()), *DirectoryLock::name_of(place() + "2"));
  const std::string longest(100, 'x');
  const auto lock = DirectoryLock::take(folder_.path() + "/" + longest);
  EXPECT_TRUE(lock->held());
  EXPECT_TRUE(DirectoryLock::take(folder_.path() + "/" + longest.substr(1), 1)->held());
  std::set<std::string> odd;  // systemd takes none of these in a name (sd_notify(3), FDNAME=)
  for (const char* last : {"m\xc3\xbcster", "a:b", "a b", "a\nb", "a\x7f", "a_b"}) {
    const std::string name = *DirectoryLock::name_of(folder_.path() + "/" + last);
    EXPECT_TRUE(odd.insert(name).second) << last;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-"), std::string::npos) << name;
  }
  const auto nowhere = DirectoryLock::take("/nonexistent/a/run");
  EXPECT_EQ(nowhere.error().code(), Code::kNotFound);
  EXPECT_THAT(nowhere.error().message(), HasSubstr("/nonexistent/a"));
}

// Goal:   those who are refused do not use up what tells the next one who holds it.
TEST_F(DirectoryLocks, AnswerManyWhoAsk) {
  const auto lock = DirectoryLock::take(place());
  ASSERT_TRUE(lock);
  for (int i = 0; i < 2 * DirectoryLock::kAskersMax; ++i) {
    if (i % 100 == 0) lock->answer();
    ASSERT_EQ(DirectoryLock::take(place(), 1).error().code(), Code::kDuplicate) << i;
  }
}

TEST_F(DirectoryLocks, GoOnToASuccessor) {
  auto lock = DirectoryLock::take(place());
  ASSERT_TRUE(lock);
  const std::string name = lock->name();
  shm::Descriptor kept(fcntl(lock->descriptor().get(), F_DUPFD_CLOEXEC, 3));
  { const DirectoryLock gone = *std::move(lock); }
  EXPECT_FALSE(DirectoryLock::take_if_free(place())) << "it is taken all the time";
  EXPECT_EQ(in_another_process([&] {
              const auto adopted =
                  DirectoryLock::adopt(shm::Descriptor(fcntl(kept.get(), F_DUPFD_CLOEXEC, 3)), name);
              if (!adopted || !adopted->held()) return 1;
              return DirectoryLock::holder_of(place())->pid == getpid() ? 0 : 2;
            }),
            0)
      << "and those who ask hear of the one who has it now";
  EXPECT_FALSE(DirectoryLock::adopt(std::move(kept), name + "x")) << "another's lock";
  EXPECT_FALSE(DirectoryLock::adopt(shm::Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), name));
}

// Goal:   no user keeps another's daemon from starting, nor is root's daemon overlooked by a user's.
TEST_F(DirectoryLocks, BelieveRootAndTheirOwnUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  shm::Descriptor go_on(ends[1]), wait(ends[0]);
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t stranger = fork();
  if (stranger == 0) {
    go_on.reset();
    if (setuid(65534) != 0) _exit(1);
    const shm::Descriptor socket = squat();
    char c = 'r';
    if (write(ready[1], &c, 1) != 1) _exit(2);
    _exit(read(wait.get(), &c, 1) == 0 ? 0 : 3);
  }
  char c = 0;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  log::configure(log::Level::kWarning, log::Format::kText);
  ::testing::internal::CaptureStderr();
  const auto lock = DirectoryLock::take(place());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("process " + std::to_string(stranger) + " of user 65534"));
  log::configure(log::Level::kOff, log::Format::kText);
  ASSERT_TRUE(lock) << "it does not count";
  EXPECT_FALSE(lock->held());
  EXPECT_FALSE(DirectoryLock::holder_of(place()));
  go_on.reset();
  int status = 0;
  waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
  const auto roots = DirectoryLock::take(place());
  ASSERT_TRUE(roots && roots->held());
  EXPECT_EQ(in_another_process([&] {
              if (setuid(65534) != 0) return 1;
              return DirectoryLock::take(place(), 1).error().code() == Code::kDuplicate ? 0 : 2;
            }),
            0);
  for (const int fd : ready) close(fd);
}

// Goal:   a user's second daemon finds the first, which lets nobody look at it; in a container it counts not.
TEST_F(DirectoryLocks, KnowTheirOwnUsersDaemonThatLetsNobodyLook) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user in a namespace of its own";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  for (const bool in_a_container : {false, true}) {
    int ready[2], go_on[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(go_on, O_CLOEXEC), 0);
    const pid_t outer = fork();
    if (outer == 0) {
      close(go_on[1]);
      if (in_a_container && unshare(CLONE_NEWPID) != 0) _exit(1);
      const pid_t holder = fork();
      if (holder == 0) {
        char c = 'r';
        if (setuid(65534) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0) _exit(1);
        const shm::Descriptor socket = squat();
        _exit(write(ready[1], &c, 1) == 1 && read(go_on[0], &c, 1) == 0 ? 0 : 2);
      }
      int status = 0;
      waitpid(holder, &status, 0);
      _exit(WEXITSTATUS(status));
    }
    shm::Descriptor hold(go_on[1]);
    close(ready[1]);
    char c = 0;
    ASSERT_EQ(read(ready[0], &c, 1), 1);
    EXPECT_EQ(in_another_process([&] {
                if (setuid(65534) != 0) return 1;
                return DirectoryLock::holder_of(place()) ? 2 : 3;
              }),
              in_a_container ? 3 : 2);
    hold.reset();
    int status = 0;
    waitpid(outer, &status, 0);
    EXPECT_EQ(status, 0);
    for (const int fd : {ready[0], go_on[0]}) close(fd);
  }
}

}  // namespace
}  // namespace muster::supervisor
