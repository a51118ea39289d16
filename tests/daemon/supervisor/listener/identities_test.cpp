// The identity of a process that has connected from a place of its own. Needs root, or user namespaces.
#include "daemon/supervisor/listener/identities.hpp"

#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Account;
using control::Identity;

constexpr unsigned kUser = 65531;

// A connected child that has entered its namespaces first. It ends with this object.
class Peer {
 public:
  // `enter`: false, if the system does not let it.
  explicit Peer(
      int namespaces, const std::function<bool()>& enter = [] { return true; }) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    shm::Descriptor ours(ends[0]), theirs(ends[1]);
    outer_ = fork();
    if (outer_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!enter() || unshare(namespaces) != 0) _exit(77);
      // A pid namespace begins with the next child.
      const pid_t inner = fork();
      if (inner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        speak(theirs.get());
      }
      int status = 0;
      waitpid(inner, &status, 0);
      _exit(0);
    }
    theirs.reset();
    socket_ = hear(ours.get());
  }
  ~Peer() {
    kill(outer_, SIGKILL);
    waitpid(outer_, nullptr, 0);
  }
  bool stands() const { return socket_.valid(); }
  Identity who(Identities& identities) const {
    auto peer = shm::peer_identity(socket_);
    EXPECT_TRUE(peer) << peer.error().text();
    return peer ? identities.of(*peer) : Identity();
  }

 private:
  // The credentials of a socket pair are those of who made it: so the child makes one and passes an end.
  [[noreturn]] static void speak(int to) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) _exit(1);
    static_cast<void>(
        shm::send_message(shm::Descriptor(to), std::as_bytes(std::span("x")), std::span(&ends[0], 1)));
    for (;;) pause();
  }
  static shm::Descriptor hear(int from) {
    std::byte buffer[8];
    const SteadyClock clock;
    auto message = shm::receive_message(shm::Descriptor(dup(from)), buffer,
                                        clock.now() + std::chrono::seconds(20), clock);
    if (!message || message->descriptors.size() != 1) return {};
    return std::move(message->descriptors[0]);
  }

  pid_t outer_ = 0;
  shm::Descriptor socket_;
};

bool become(unsigned uid) {
  return setgid(uid) == 0 && setuid(uid) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

class IdentitiesTest : public ::testing::Test {
 protected:
  IdentitiesTest() {
    if (geteuid() != 0) skip_ = true;
  }
  void SetUp() override {
    if (skip_) GTEST_SKIP() << "needs root, to make namespaces and to become another user";
  }
  bool skip_ = false;
  Identities identities_{Identities::Rule::kWhereHeIs};
};

TEST_F(IdentitiesTest, OfThisNodeAreItsUsers) {
  EXPECT_EQ(Peer(0).who(identities_), Identity(0));
  const Identity user = Peer(0, [] { return become(kUser); }).who(identities_);
  EXPECT_EQ(user, Identity(kUser));
  EXPECT_EQ(user.account, Account(kUser));
  EXPECT_TRUE(control::is_governor(Identity(0), kUser));
  EXPECT_TRUE(control::is_governor(user, kUser));
}

// Goal:   root of another pid namespace is not root here, and no root of another one.
TEST_F(IdentitiesTest, OfAnotherPidNamespaceAreForeign) {
  const Peer first(CLONE_NEWPID), second(CLONE_NEWPID);
  const Identity one = first.who(identities_), two = second.who(identities_);
  EXPECT_FALSE(one.is_home());
  EXPECT_NE(one.pid_namespace, 0u);
  EXPECT_EQ(one.user_namespace, 0u);
  EXPECT_FALSE(one == two);
  EXPECT_FALSE(control::is_governor(one, 0));
  EXPECT_FALSE(one.account == two.account);
  EXPECT_TRUE(one == first.who(identities_)) << "the same each time";
  EXPECT_TRUE(one.handles && one.handles->pid_namespace.valid());
  EXPECT_EQ(one.handles, first.who(identities_).handles) << "a place is held once";
  const Identity user = Peer(CLONE_NEWPID, [] { return true; }).who(identities_);
  EXPECT_FALSE(user == Identity(0));
}

// Goal:   a rank in its own user's user namespace is that user (Apptainer, unshare -U); in root's it is not.
TEST_F(IdentitiesTest, OfAUserNamespaceOfTheirOwnAreTheSameUser) {
  const Peer own(CLONE_NEWUSER, [] { return become(kUser); });
  if (!own.stands()) GTEST_SKIP() << "this system lets users make no user namespaces";
  EXPECT_EQ(own.who(identities_), Identity(kUser));
  const Identity roots = Peer(CLONE_NEWUSER).who(identities_);
  EXPECT_FALSE(roots.is_home()) << "root in a user namespace is not root";
  EXPECT_EQ(roots.pid_namespace, 0u);
  EXPECT_NE(roots.user_namespace, 0u);
}

// Goal:   a user of a container that root has made is not the host's user of his number, whatever namespace
// he
//         makes within it.
TEST_F(IdentitiesTest, OfANamespaceWithinAContainerAreForeign) {
  const auto enter = [] {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t inside = getpid(), mapper = fork();
    if (mapper == 0) {  // it stays outside, where it may map all users
      char go = 0;
      bool mapped = read(ends[0], &go, 1) == 1;
      for (const char* map : {"uid_map", "gid_map"})
        mapped = mapped && (std::ofstream(fmt::format("/proc/{}/{}", inside, map)) << "0 0 65536\n").flush();
      _exit(mapped ? 0 : 1);
    }
    int status = 1;
    return unshare(CLONE_NEWUSER) == 0 && write(ends[1], "x", 1) == 1 &&
           waitpid(mapper, &status, 0) == mapper && status == 0 && become(kUser);
  };
  const Peer plain(0, enter), nested(CLONE_NEWUSER, enter);
  if (!nested.stands()) GTEST_SKIP() << "this system lets users make no user namespaces";
  for (const Peer* peer : {&plain, &nested}) {
    const Identity who = peer->who(identities_);
    EXPECT_FALSE(who.is_home()) << who.uid;
    EXPECT_NE(who.user_namespace, 0u);
    EXPECT_EQ(who.account.uid, 0u) << "a container of root's";
  }
}

// Goal:   nobody gets more shares by more namespaces.
TEST_F(IdentitiesTest, OfOneUsersNamespacesHaveOneAccount) {
  const auto enter = [] { return become(kUser); };
  const Peer first(CLONE_NEWUSER | CLONE_NEWPID, enter), second(CLONE_NEWUSER | CLONE_NEWPID, enter);
  if (!first.stands()) GTEST_SKIP() << "this system lets users make no user namespaces";
  const Identity one = first.who(identities_), two = second.who(identities_);
  EXPECT_FALSE(one == two);
  EXPECT_EQ(one.account, two.account);
  EXPECT_EQ(one.account, Account(kUser)) << "his containers are in his share";
  // Root has made this one; what a user within it makes does not count to the host's user of his number.
  const Peer pod(CLONE_NEWUSER, [] { return unshare(CLONE_NEWPID) == 0 && become(kUser); });
  ASSERT_TRUE(pod.stands());
  EXPECT_EQ(pod.who(identities_).account.uid, 0u);
  EXPECT_NE(pod.who(identities_).account.container, 0u);
  const Identity container = Peer(CLONE_NEWPID).who(identities_);
  EXPECT_NE(container.account.container, 0u);
  EXPECT_EQ(container.account.uid, 0u);
}

// Goal:   a process that has ended before the look has no known identity.
TEST_F(IdentitiesTest, OfAProcessThatHasEndedAreUnknown) {
  shm::PeerIdentity peer;
  {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    peer.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    peer.pid = child;
    waitpid(child, nullptr, 0);
  }
  const Identity who = identities_.of(peer);
  EXPECT_FALSE(who.is_home());
  EXPECT_EQ(who.pid_namespace, Identity::kUnknown);
  EXPECT_FALSE(control::is_governor(who, 0));
  EXPECT_NE(who.account, Account(peer.uid)) << "he may be of a container";
}

TEST_F(IdentitiesTest, OfAPrivateDaemonGoByTheUserAlone) {
  Identities alone(Identities::Rule::kUidAlone);
  EXPECT_EQ(Peer(CLONE_NEWPID).who(alone), Identity(0));
}

// Goal:   a client that may govern came to the control socket, and is root of this node.
TEST_F(IdentitiesTest, GovernByTheControlDoorAlone) {
  PendingClient client;
  client.who = 0;
  EXPECT_FALSE(Identities::governs(client));
  client.door = Door::kControl;
  EXPECT_TRUE(Identities::governs(client));
  client.who = Peer(CLONE_NEWPID).who(identities_);
  EXPECT_FALSE(Identities::governs(client)) << "a container that has mounted too much";
  client.who = kUser;
  EXPECT_FALSE(Identities::governs(client));
}

}  // namespace
}  // namespace muster::supervisor
