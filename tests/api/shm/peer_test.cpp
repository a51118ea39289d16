#include "api/shm/peer.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::shm {
namespace {

// A listening socket without a path, to which a child process connects. The child connects and stays
// until its other end is closed.
struct Visitor {
  Visitor() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    control = Descriptor(ends[0]);
    const Descriptor childs_control(ends[1]);
    // An autobound abstract address: only for the test, which needs no permissions.
    listener = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    address.ss_family = AF_UNIX;
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    socklen_t length = sizeof address;
    EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    pid = fork();
    if (pid == 0) {
      control.reset();
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) _exit(1);
      char stop = 0;
      _exit(read(childs_control.get(), &stop, 1) == 0 ? 0 : 2);
    }
    connection = Descriptor(accept(listener.get(), nullptr, nullptr));
  }
  int leave() {
    control.reset();
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }
  ~Visitor() {
    if (pid > 0) leave();
  }

  Descriptor control, listener, connection;
  pid_t pid = -1;
};

class PeerTest : public testing::TestWithParam<PeerIdentity::Source> {
 protected:
  // True if this kernel has the way at all.
  static bool available(const Descriptor& connection) {
    const auto peer = peer_identity(connection, GetParam());
    return peer || peer.error().code() != Code::kUnsupported;
  }
};

TEST_P(PeerTest, KnowsWhoConnected) {
  Visitor visitor;
  if (!available(visitor.connection)) GTEST_SKIP() << "this kernel has no SO_PEERPIDFD";
  const auto peer = peer_identity(visitor.connection, GetParam());
  ASSERT_TRUE(peer) << peer.error().text();
  EXPECT_EQ(peer->pid, visitor.pid);
  EXPECT_EQ(peer->uid, geteuid());
  EXPECT_EQ(peer->gid, getegid());
  EXPECT_FALSE(has_ended(peer->pidfd));
  EXPECT_EQ(visitor.leave(), 0);
  EXPECT_TRUE(has_ended(peer->pidfd)) << "the pidfd outlives the process and says so";
}

TEST_P(PeerTest, RefusesOneThatHasEnded) {
  Visitor visitor;
  if (!available(visitor.connection)) GTEST_SKIP() << "this kernel has no SO_PEERPIDFD";
  EXPECT_EQ(visitor.leave(), 0);
  const auto peer = peer_identity(visitor.connection, GetParam());
  // A kernel may still give a pidfd of a process that has ended; then it says so.
  if (peer)
    EXPECT_TRUE(has_ended(peer->pidfd));
  else
    EXPECT_EQ(peer.error().code(), Code::kStale);
}

INSTANTIATE_TEST_SUITE_P(Sources, PeerTest,
                         testing::Values(PeerIdentity::Source::kBest, PeerIdentity::Source::kSocket,
                                         PeerIdentity::Source::kNumber));

// Goal:   a process that this one cannot see is served where the kernel gives a handle on it, and else
//         refused with the remedy.
// Method: a child in a pid namespace of its own looks at this process, which has connected to it.
TEST_P(PeerTest, KnowsOneThatItCannotSee) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor connection(ends[0]), own(ends[1]);
  if (!available(connection)) GTEST_SKIP() << "this kernel has no SO_PEERPIDFD";
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(77);
    const pid_t inner = fork();
    if (inner == 0) {
      const auto peer = peer_identity(connection, GetParam());
      if (GetParam() == PeerIdentity::Source::kNumber) {
        const bool told = !peer && peer.error().code() == Code::kDenied &&
                          peer.error().message().find("--pid host") != std::string::npos &&
                          peer.error().message().find("hostPID") != std::string::npos;
        _exit(told ? 0 : 1);
      }
      _exit(peer && peer->pid == 0 && peer->pidfd.valid() && !has_ended(peer->pidfd) ? 0 : 2);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  waitpid(outer, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root, to make a process namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Peer, NeedsAConnectedUnixSocket) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor readable(ends[0]), writable(ends[1]);
  EXPECT_EQ(peer_identity(readable).error().code(), Code::kProtocol);
  EXPECT_EQ(peer_identity(Descriptor()).error().code(), Code::kProtocol);
  const Descriptor unconnected(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(peer_identity(unconnected).error().code(), Code::kProtocol);
}

}  // namespace
}  // namespace muster::shm
