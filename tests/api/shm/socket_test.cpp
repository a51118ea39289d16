#include "api/shm/socket.hpp"

#include "api/shm/message.hpp"
#include "tests/support/folder.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::shm {
namespace {

using testing::HasSubstr;

int in_another_process(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int open_descriptors() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class SocketTest : public testing::Test {
 protected:
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }

  // Both ends of a connection.
  struct Pair {
    Descriptor client, server;
  };
  Pair connected(const Listener& listener) {
    Pair pair;
    pair.client = connect_to(path_, soon(), clock_).value();
    pair.server = listener.accept().value();
    return pair;
  }
  static Pair pair_of_sockets() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }

  SteadyClock clock_;
  const test::Folder own_;
  const std::string folder_ = own_.path();
  const std::string path_ = folder_ + "/d.sock";
  std::array<std::byte, kMessageBytesMax> buffer_;
};

TEST_F(SocketTest, CarriesMessagesBothWaysInOrder) {
  const auto listener = Listener::open(path_, {});
  ASSERT_TRUE(listener) << listener.error().text();
  EXPECT_EQ(listener->accept().error().code(), Code::kPending);
  Pair pair = connected(*listener);
  EXPECT_EQ(receive_message(pair.server, buffer_).error().code(), Code::kPending);
  for (std::uint32_t serial = 1; serial <= 3; ++serial)
    ASSERT_TRUE(send_message(pair.client, bytes_of(make_message<Plain>(MessageKind::kDone, serial))).ok());
  for (std::uint32_t serial = 1; serial <= 3; ++serial) {
    const auto message = receive_message(pair.server, buffer_);
    ASSERT_TRUE(message);
    EXPECT_EQ(checked<Plain>(std::span(buffer_).first(message->bytes), MessageKind::kDone)->header.serial,
              serial);
  }
  std::vector<std::byte> largest(kMessageBytesMax, std::byte{7});
  ASSERT_TRUE(send_message(pair.server, largest).ok());
  EXPECT_EQ(receive_message(pair.client, buffer_, soon(), clock_)->bytes, kMessageBytesMax);
}

TEST_F(SocketTest, GivesDescriptorsToTheProgramButNotToItsChildren) {
  Pair pair = pair_of_sockets();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Descriptor readable(pipe_ends[0]), writable(pipe_ends[1]);
  const int sent[] = {readable.get(), writable.get()};
  const auto plain = make_message<Plain>(MessageKind::kDone, 1);
  ASSERT_TRUE(send_message(pair.client, bytes_of(plain), sent).ok());
  auto message = receive_message(pair.server, buffer_);
  ASSERT_TRUE(message);
  ASSERT_EQ(message->descriptors.size(), 2u);
  for (const Descriptor& d : message->descriptors)
    EXPECT_EQ(fcntl(d.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(write(message->descriptors[1].get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(read(readable.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

// Sends more descriptors than our own function would.
void send_raw(int fd, std::size_t count, std::size_t bytes) {
  std::vector<int> descriptors(count, STDERR_FILENO);
  std::vector<char> payload(bytes, 'x'), control(CMSG_SPACE(count * sizeof(int)));
  iovec data{payload.data(), payload.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(part), descriptors.data(), count * sizeof(int));
  }
  ASSERT_EQ(sendmsg(fd, &header, 0), static_cast<ssize_t>(bytes));
}

TEST_F(SocketTest, RefusesExcessDescriptorsAndKeepsNone) {
  Pair pair = pair_of_sockets();
  const int before = open_descriptors();
  for (const std::size_t count : {kDescriptorsMax + 1, kDescriptorsMax + 2, std::size_t{253}}) {
    for (int round = 0; round < 20; ++round) {
      send_raw(pair.client.get(), count, 16);
      const auto message = receive_message(pair.server, buffer_);
      ASSERT_FALSE(message) << count;
      EXPECT_EQ(message.error().code(), Code::kProtocol) << count;
    }
  }
  EXPECT_EQ(open_descriptors(), before);
  send_raw(pair.client.get(), kDescriptorsMax, 16);
  EXPECT_EQ(receive_message(pair.server, buffer_)->descriptors.size(), kDescriptorsMax);
  EXPECT_EQ(open_descriptors(), before) << "a message that is dropped drops its descriptors";
}

TEST_F(SocketTest, RefusesAMessageThatDoesNotFitAndKeepsItsDescriptorsClosed) {
  Pair pair = pair_of_sockets();
  const int before = open_descriptors();
  send_raw(pair.client.get(), 2, 100);
  const auto message = receive_message(pair.server, std::span(buffer_).first(64));
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), Code::kProtocol);
  EXPECT_EQ(open_descriptors(), before);
  send_raw(pair.client.get(), 0, 64);
  EXPECT_EQ(receive_message(pair.server, std::span(buffer_).first(64))->bytes, 64u)
      << "the next one is whole again";
}

TEST_F(SocketTest, SaysWhenItHasNoPlaceForDescriptorsAndGoesOn) {
  constexpr std::byte kOld{0x5a};
  Pair pair = pair_of_sockets();
  std::fill(buffer_.begin(), buffer_.end(), kOld);
  send_raw(pair.client.get(), 2, 16);
  send_raw(pair.client.get(), 0, 17);
  const int result = in_another_process([&] {
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    while (dup(2) >= 0) {
    }
    const auto cut = receive_message(pair.server, buffer_);
    if (cut || cut.error().code() != Code::kNoResource) return 1;
    if (cut.error().message().find("RLIMIT_NOFILE") == std::string::npos) return 2;
    const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
    if (buffer_[15] != std::byte{'x'}) return 3;
    if (!std::all_of(buffer_.begin() + 16, buffer_.end(), is_zero)) return 4;  // its length is lost
    const auto next = receive_message(pair.server, buffer_);
    return next && next->bytes == 17 ? 0 : 5;
  });
  EXPECT_EQ(result, 0);
}

TEST_F(SocketTest, OpensNoDescriptorWhereNoneMayCome) {
  Pair pair = pair_of_sockets();
  const int before = open_descriptors();
  send_raw(pair.client.get(), 1, 16);
  send_raw(pair.client.get(), 0, 17);
  const auto refused = receive_message(pair.server, buffer_, Passing::kNone);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(receive_message(pair.server, buffer_, Passing::kNone)->bytes, 17u);
}

TEST_F(SocketTest, HandsGarbageToTheParserWhichRefusesIt) {
  Pair pair = pair_of_sockets();
  send_raw(pair.client.get(), 0, 333);
  const auto message = receive_message(pair.server, buffer_);
  ASSERT_TRUE(message);
  EXPECT_EQ(checked_header(std::span(buffer_).first(message->bytes)).error().code(), Code::kProtocol);
}

TEST_F(SocketTest, NeverBlocksOnAPeerThatDoesNotRead) {
  Pair pair = pair_of_sockets();
  const std::vector<std::byte> bytes(kMessageBytesMax);
  Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) status = send_message(pair.client, bytes);
  EXPECT_EQ(status.code(), Code::kBusy);
}

TEST_F(SocketTest, SaysWhenThePeerHasClosed) {
  Pair pair = pair_of_sockets();
  pair.client.reset();
  EXPECT_EQ(receive_message(pair.server, buffer_)->bytes, 0u);
  EXPECT_EQ(receive_message(pair.server, buffer_, soon(), clock_)->bytes, 0u);
  EXPECT_EQ(send_message(pair.server, bytes_of(make_message<Plain>(MessageKind::kDone, 1))).code(),
            Code::kDaemonLost);
}

TEST_F(SocketTest, HearsWhatAPeerSaidBeforeItClosedWithoutListening) {
  Pair pair = pair_of_sockets();
  const auto plain = make_message<Plain>(MessageKind::kDone, 1);
  ASSERT_TRUE(send_message(pair.server, bytes_of(plain)).ok());  // never read
  ASSERT_TRUE(send_message(pair.client, bytes_of(plain)).ok());
  pair.client.reset();
  EXPECT_EQ(receive_message(pair.server, buffer_)->bytes, sizeof plain);
  EXPECT_EQ(receive_message(pair.server, buffer_)->bytes, 0u);
}

TEST_F(SocketTest, RefusesToSendWhatCannotBe) {
  Pair pair = pair_of_sockets();
  const std::vector<std::byte> large(kMessageBytesMax + 1);
  EXPECT_EQ(send_message(pair.client, large).code(), Code::kBadArgument);
  EXPECT_EQ(send_message(pair.client, {}).code(), Code::kBadArgument)
      << "an empty datagram would read as a closed peer";
  const std::vector<int> many(kDescriptorsMax + 1, 2);
  EXPECT_EQ(send_message(pair.client, std::span(large).first(8), many).code(), Code::kBadArgument);
}

TEST_F(SocketTest, WaitsForAMessageNoLongerThanItsDeadline) {
  Pair pair = pair_of_sockets();
  const Instant deadline = clock_.now() + std::chrono::milliseconds(5);
  EXPECT_EQ(receive_message(pair.server, buffer_, deadline, clock_).error().code(), Code::kWaitTimeout);
  EXPECT_GE(clock_.now(), deadline);
}

// ---- paths

TEST_F(SocketTest, RefusesAPathInUse) {
  const auto first = Listener::open(path_, {});
  ASSERT_TRUE(first);
  const auto second = Listener::open(path_, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kDuplicate);
  EXPECT_THAT(second.error().message(), HasSubstr("already listens at " + path_));
  EXPECT_TRUE(connect_to(path_, soon(), clock_)) << "the first one still listens";
}

TEST_F(SocketTest, RefusesAPathInUseWhoseQueueIsFull) {
  const auto first = Listener::open(path_, {.backlog = 0});
  ASSERT_TRUE(first);
  const Descriptor waiting = connect_to(path_, soon(), clock_).value();
  EXPECT_EQ(Listener::open(path_, {}).error().code(), Code::kDuplicate);
  const auto third = connect_to(path_, clock_.now() + std::chrono::milliseconds(10), clock_);
  EXPECT_EQ(third.error().code(), Code::kDaemonLost);
  EXPECT_THAT(third.error().message(), HasSubstr("in time"));
}

TEST_F(SocketTest, ReplacesWhatAKilledDaemonLeftBehind) {
  ASSERT_EQ(in_another_process([&]() -> int {
              const auto listener = Listener::open(path_, {});
              _exit(listener ? 0 : 1);  // without its destructor, like a killed process
            }),
            0);
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  const auto refused = connect_to(path_, soon(), clock_);
  EXPECT_EQ(refused.error().code(), Code::kDaemonLost);
  EXPECT_THAT(refused.error().message(), HasSubstr("nobody listens"));
  EXPECT_TRUE(Listener::open(path_, {}));
}

TEST_F(SocketTest, RemovesItsPathButNotAnothers) {
  { const auto listener = Listener::open(path_, {}); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  {
    const auto listener = Listener::open(path_, {});
    std::filesystem::remove(path_);
    std::ofstream(path_) << "not ours";
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(SocketTest, DoesNotTouchAFileThatIsNoSocket) {
  std::ofstream(path_) << "precious";
  const auto refused = Listener::open(path_, {});
  EXPECT_EQ(refused.error().code(), Code::kDuplicate);
  EXPECT_THAT(refused.error().message(), HasSubstr("no socket"));
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/nowhere", path_);
  EXPECT_EQ(Listener::open(path_, {}).error().code(), Code::kDuplicate) << "nor follows a link";
}

TEST_F(SocketTest, SaysThatAPathIsNoSocket) {
  std::ofstream(path_) << "a file";
  const auto refused = connect_to(path_, soon(), clock_);
  EXPECT_EQ(refused.error().code(), Code::kDaemonLost);
  EXPECT_THAT(refused.error().message(), HasSubstr("is not a socket"));
}

TEST_F(SocketTest, DoesNotRemoveAStaleSocketOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a file of another user";
  ASSERT_EQ(in_another_process([&]() -> int {
              const auto listener = Listener::open(path_, {});
              _exit(listener ? 0 : 1);
            }),
            0);
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  const auto refused = Listener::open(path_, {});
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("user 65534"));
}

TEST_F(SocketTest, RefusesPathsThatCannotBe) {
  const std::string longer = folder_ + "/" + std::string(108, 'x');
  const auto refused = Listener::open(longer, {});
  EXPECT_EQ(refused.error().code(), Code::kBadArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("allows 107"));
  EXPECT_EQ(connect_to(longer, soon(), clock_).error().code(), Code::kBadArgument);
  EXPECT_EQ(Listener::open("", {}).error().code(), Code::kBadArgument);
  const std::string longest = folder_ + "/" + std::string(107 - folder_.size() - 1, 'x');
  EXPECT_TRUE(Listener::open(longest, {})) << "107 bytes are just right";
  EXPECT_EQ(connect_to(folder_ + "/none.sock", soon(), clock_).error().code(), Code::kDaemonLost);
}

TEST_F(SocketTest, SaysWhyItsFolderCannotHoldIt) {
  std::ofstream(folder_ + "/file") << "no folder";
  ASSERT_EQ(symlink("nowhere", (folder_ + "/dangling").c_str()), 0);
  const std::pair<const char*, std::string> cases[] = {
      {"/no/such/d.sock", "there is no folder " + folder_ + "/no/such; make it first, or name another place"},
      {"/file/d.sock", folder_ + "/file is a file, so nothing can be in it; name another place"},
      {"/dangling/d.sock", folder_ +
                               "/dangling is a link to nowhere, which is not there; remove the link, or "
                               "name another place"}};
  for (const auto& [name, why] : cases) {
    const auto refused = Listener::open(folder_ + name, {});
    EXPECT_EQ(refused.error().code(), Code::kNotFound) << name;
    EXPECT_EQ(refused.error().message(), folder_ + name + " cannot be made: " + why);
  }
}

TEST_F(SocketTest, RefusesASocketOfAnotherKind) {
  const Descriptor stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(stream.get(), 1), 0);
  EXPECT_EQ(connect_to(path_, soon(), clock_).error().code(), Code::kProtocol);
  EXPECT_EQ(Listener::open(path_, {}).error().code(), Code::kDuplicate);
}

// Goal:   a refusal says whose directory it is and who was refused.
// Method: another process gives up root, if it had it, and tries a directory and a socket that are root's
//         alone.
TEST_F(SocketTest, NamesAMissingPermission) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without rights";
  const auto listener = Listener::open(path_, {.mode = 0600});
  ASSERT_TRUE(listener);
  struct stat facts {};
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const int result = in_another_process([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
    const auto bound = Listener::open(folder_ + "/mine.sock", {});
    if (bound || bound.error().code() != Code::kDenied) return 2;
    if (bound.error().message().find("mode 0755") == std::string::npos) return 3;
    if (bound.error().message().find("this is user 65534") == std::string::npos) return 4;
    const auto refused = connect_to(path_, soon(), clock_);
    if (refused || refused.error().code() != Code::kDenied) return 5;
    const std::string& text = refused.error().message();
    if (text.find("mode 0600") == std::string::npos) return 6;
    if (text.find("node.group") == std::string::npos) return 7;
    return text.find(path_) == text.rfind(path_) ? 0 : 8;
  });
  EXPECT_EQ(result, 0);
}

TEST_F(SocketTest, AnswersWhenDescriptorsAreUsedUp) {
  const auto listener = Listener::open(path_, {});
  ASSERT_TRUE(listener);
  const Descriptor client = connect_to(path_, soon(), clock_).value();
  const int result = in_another_process([&] {
    while (dup(2) >= 0) {
    }
    const auto refused = listener->accept();
    return !refused && refused.error().code() == Code::kNoResource ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace muster::shm
