#include "daemon/engine/session/process_end.hpp"

#include <csignal>
#include <cstdio>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::engine {
namespace {

// A child that ends as it was told, and has been seen to.
class Child {
 public:
  explicit Child(int status, int signal = 0) {
    pid_ = fork();
    if (pid_ == 0) {
      if (signal != 0) raise(signal);
      _exit(status);
    }
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    pollfd entry{pidfd_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, -1), 1);
  }
  ~Child() { reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }
  std::string text() const { return text_of(how_ended(pidfd_, pid_)); }

 private:
  pid_t pid_ = 0;
  shm::Descriptor pidfd_;
  bool reaped_ = false;
};

bool kernel_remembers() {
  utsname system{};
  int major = 0, minor = 0;
  return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 15));
}

// Goal:   the way a process ended is known before its parent has asked; after that, where the kernel keeps
//         it.
TEST(ProcessEnd, IsToldToOneWhoIsNotTheParent) {
  const struct {
    int status, signal;
    const char* text;
  } cases[] = {{0, 0, "ended with status 0 without muster_close"},
               {7, 0, "ended with status 7 without muster_close"},
               {0, SIGKILL, "died of signal 9 (Killed)"},
               {0, SIGTERM, "died of signal 15 (Terminated)"}};
  for (const auto& each : cases) {
    Child child(each.status, each.signal);
    EXPECT_EQ(child.text(), each.text);
    child.reap();
    EXPECT_EQ(child.text(), kernel_remembers() ? each.text : "ended without muster_close");
  }
}

// Nothing is said of a process that runs, nor of one that is not there.
TEST(ProcessEnd, IsNotGuessed) {
  const shm::Descriptor own(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  EXPECT_FALSE(how_ended(own, getpid()).has_value());
  EXPECT_FALSE(how_ended(own, 0).has_value());
  EXPECT_FALSE(how_ended(shm::Descriptor(), 0).has_value());
  EXPECT_EQ(text_of(std::nullopt), "ended without muster_close");
}

}  // namespace
}  // namespace muster::engine
