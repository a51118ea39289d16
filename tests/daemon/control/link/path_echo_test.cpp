#include "daemon/control/link/path_echo.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

using namespace std::chrono_literals;

// A far end on a thread of its own, as in another node's daemon.
//
// Owns    loop and thread. Thread  the test's. Bound  -. Fails  the test.
class FarEnd {
 public:
  explicit FarEnd(const char* address) : address(*IpAddress::parse(address)) {
    auto opened = PathEcho::open(loop_, this->address);
    EXPECT_TRUE(opened) << opened.error().text();
    echo_ = *std::move(opened);
    port = echo_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~FarEnd() {
    loop_.stop();
    thread_.join();
  }
  FarEnd(const FarEnd&) = delete;
  FarEnd& operator=(const FarEnd&) = delete;

  PathTrial trial(Nanos time = 20s) const { return try_path(address, address, port, time, SteadyClock()); }
  // Its answer to those bytes until it closes the connection, or the first 16 bytes of the answer.
  std::string said_to(const std::string& bytes) const {
    const auto there = numeric({address.text(), port});
    const shm::Descriptor socket(::socket(there->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there->address), there->bytes), 0);
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    std::string answer(kPathHead.size(), '\0');
    const ssize_t n = ::recv(socket.get(), answer.data(), answer.size(), MSG_WAITALL);
    answer.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return answer;
  }

  const IpAddress address;
  std::uint16_t port = 0;

 private:
  Loop loop_;
  std::unique_ptr<PathEcho> echo_;
  std::thread thread_;
};

TEST(PathEcho, AnswersSmallAndLarge) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    const FarEnd far(address);
    const PathTrial trial = far.trial();
    EXPECT_EQ(trial.stage, PathTrial::Stage::kGood) << address << ": " << trial.why.text();
    EXPECT_TRUE(trial.why.ok());
    EXPECT_GT(trial.segment_bytes, 500u);
  }
}

TEST(PathEcho, AnswersWhoeverComesAfterThoseWhoSayNothing) {
  const FarEnd far("127.0.0.1");
  std::vector<shm::Descriptor> silent;
  const auto there = numeric({"127.0.0.1", far.port});
  for (std::size_t i = 0; i < 3 * PathEcho::kClientsMax; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        ::connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&there->address), there->bytes), 0);
  }
  EXPECT_EQ(far.trial().stage, PathTrial::Stage::kGood);
}

TEST(PathEcho, DropsWhoeverSaysAnythingElse) {
  const FarEnd far("127.0.0.1");
  EXPECT_EQ(far.said_to(std::string(kPathHead)), kPathHead);
  EXPECT_EQ(far.said_to("GET / HTTP/1.1\r\n"), "");
  EXPECT_EQ(far.trial().stage, PathTrial::Stage::kGood);
}

TEST(PathTrial, SaysThatNobodyIsThere) {
  std::uint16_t port = 0;
  {
    const FarEnd far("127.0.0.1");
    port = far.port;
  }
  const IpAddress here = *IpAddress::parse("127.0.0.1");
  const PathTrial trial = try_path(here, here, port, 20s, SteadyClock());
  EXPECT_EQ(trial.stage, PathTrial::Stage::kConnect);
  EXPECT_THAT(trial.why.message(), ::testing::HasSubstr("Connection refused"));
}

// Goal:   a far end that says nothing, that does not get a large message, or whose own is lost is told apart.
// Method: one that sends so many heads, takes what comes before the trial waits for more, and closes.
TEST(PathTrial, SaysHowFarItCame) {
  const IpAddress here = *IpAddress::parse("127.0.0.1");
  const PathTrial::Stage stages[] = {PathTrial::Stage::kSmall, PathTrial::Stage::kThere,
                                     PathTrial::Stage::kBack};
  for (std::size_t heads = 0; heads < std::size(stages); ++heads) {
    const auto listener = TcpListener::open({"127.0.0.1", 0});
    ASSERT_TRUE(listener);
    std::thread far([&listener, heads] {
      auto client = listener->accept();
      while (!client) client = listener->accept();
      const int socket = client->socket.get();
      fcntl(socket, F_SETFL, 0);  // waits
      for (std::size_t i = 0; i < heads; ++i)
        ::send(socket, kPathHead.data(), kPathHead.size(), MSG_NOSIGNAL);
      std::size_t left = heads == 0 ? kPathHead.size() : kPathHead.size() + kPathBytes;
      char piece[4096];
      while (left > 0) {
        const ssize_t n = ::recv(socket, piece, std::min(left, sizeof piece), 0);
        if (n <= 0) break;
        left -= static_cast<std::size_t>(n);
      }
    });
    const PathTrial trial = try_path(here, here, listener->port(), 20s, SteadyClock());
    far.join();
    EXPECT_EQ(trial.stage, stages[heads]) << trial.why.text();
    EXPECT_THAT(trial.why.message(), ::testing::HasSubstr("closed the connection"));
  }
}

TEST(PathTrial, GivesUpAfterItsTime) {
  const IpAddress here = *IpAddress::parse("127.0.0.1");
  const auto listener = TcpListener::open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  const PathTrial trial = try_path(here, here, listener->port(), 50ms, SteadyClock());
  EXPECT_NE(trial.stage, PathTrial::Stage::kGood);
  EXPECT_EQ(trial.why.code(), Code::kTimeout) << trial.why.text();
}

}  // namespace
}  // namespace muster::control
