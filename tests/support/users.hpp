// Other users in a test: its child processes that run as another user. Needs root.
#pragma once

#include "api/shm/descriptor.hpp"
#include "tests/support/node.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {

// Nobody's, on any machine.
constexpr unsigned kOneUser = 65531;
constexpr unsigned kOtherUser = 65532;
constexpr unsigned kThirdUser = 65533;

// Starts the node so that other users may connect.
inline void start_for_everybody(Node& node) {
  node.options.directory_mode = 0755;
  node.start();
  std::filesystem::permissions(std::filesystem::path(node.options.runtime_directory).parent_path(),
                               std::filesystem::perms(0755));
}

// In a child process.
inline void become_user(unsigned uid) {
  if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(99);
}

// The exit code of a child that is another user.
inline int as_user(const Node& node, unsigned uid, const std::function<int()>& act) {
  const pid_t child = node.fork();
  if (child == 0) {
    become_user(uid);
    _exit(act());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

// A child that is another user, takes something and keeps it.
//
// Owns    the child, which ends without taking leave of anybody.
// Thread  the test's.
// Bound   one word back.
// Fails   -
class Taker {
 public:
  Taker(const Node& node, unsigned uid, const std::function<std::uint64_t()>& take) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    shm::Descriptor theirs(ends[1]);
    child_ = node.fork();
    if (child_ == 0) {
      ours_.reset();
      become_user(uid);
      const std::uint64_t taken = take();
      char word = 0;
      _exit(write(theirs.get(), &taken, sizeof taken) == sizeof taken && read(theirs.get(), &word, 1) >= 0
                ? 0
                : 1);
    }
    theirs.reset();
    EXPECT_EQ(read(ours_.get(), &taken_, sizeof taken_), ssize_t{sizeof taken_});
  }
  ~Taker() { let_go(); }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  // The result of `take`.
  std::uint64_t taken() const { return taken_; }
  void let_go() {
    if (child_ == 0) return;
    EXPECT_EQ(write(ours_.get(), "", 1),
              1);  // takers that came later have a copy of it: closing says nothing
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    child_ = 0;
  }

 private:
  shm::Descriptor ours_;
  pid_t child_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace muster::test
