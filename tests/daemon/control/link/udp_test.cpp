// Datagrams over the loopback addresses.
#include "daemon/control/link/udp.hpp"

#include <string>
#include <vector>

#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::uint16_t free_port(const char* host) {
  const auto listener = TcpListener::open({host, 0});
  EXPECT_TRUE(listener) << listener.error().text();
  return listener ? listener->port() : std::uint16_t{0};
}

void say(const UdpSocket& from, const SocketAddress& to, const std::string& text) {
  from.send(to, std::as_bytes(std::span(text)));
}

struct Came {
  std::vector<std::string> texts;
  SocketAddress from;  // of the last
};

// The datagrams that have come, once one has: at most `most`.
Came come(const UdpSocket& socket, std::size_t most = 100) {
  pollfd ready{socket.descriptor().get(), POLLIN, 0};
  poll(&ready, 1, 10'000);
  Came came;
  socket.receive(most, [&came](const SocketAddress& from, std::span<const std::byte> bytes) {
    came.texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    came.from = from;
  });
  return came;
}

TEST(Udp, CarriesDatagramsBothWays) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    if (std::string(host) == "::1" && !TcpListener::open({host, 0})) GTEST_SKIP() << "no version 6 here";
    const std::uint16_t port = free_port(host);
    const auto here = UdpSocket::open({host, port});
    const auto there = UdpSocket::open({host, free_port(host)});
    ASSERT_TRUE(here && there);
    say(*there, *numeric({host, port}), "one");
    const Came asked = come(*here);
    EXPECT_THAT(asked.texts, ElementsAre("one"));
    say(*here, asked.from, "two");
    EXPECT_THAT(come(*there).texts, ElementsAre("two"));
  }
}

// Goal:   a node whose address is a name listens for both versions, and answers in both.
TEST(Udp, ReachesVersion4FromASocketForAll) {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto everywhere = UdpSocket::open({"some-name", port});
  ASSERT_TRUE(everywhere) << everywhere.error().text();
  const std::uint16_t other_port = free_port("127.0.0.1");
  const auto four = UdpSocket::open({"127.0.0.1", other_port});
  ASSERT_TRUE(four);
  say(*everywhere, *numeric({"127.0.0.1", other_port}), "to a plain address");
  const Came came = come(*four);
  EXPECT_THAT(came.texts, ElementsAre("to a plain address"));
  say(*four, *numeric({"127.0.0.1", port}), "back");
  const Came back = come(*everywhere);
  EXPECT_THAT(back.texts, ElementsAre("back"));
  say(*everywhere, back.from, "to where it came from");
  EXPECT_THAT(come(*four).texts, ElementsAre("to where it came from"));
  // A mapped address works on a socket of version 4 too; one of version 6 alone is lost.
  say(*four, *numeric({"::ffff:127.0.0.1", port}), "mapped");
  say(*four, *numeric({"::1", port}), "lost");
  EXPECT_THAT(come(*everywhere).texts, ElementsAre("mapped"));
}

TEST(Udp, TakesSoManyATurnAndDropsLongOnes) {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto here = UdpSocket::open({"127.0.0.1", port});
  const auto there = UdpSocket::open({"127.0.0.1", free_port("127.0.0.1")});
  ASSERT_TRUE(here && there);
  const SocketAddress to = *numeric({"127.0.0.1", port});
  say(*there, to, "1");
  say(*there, to, std::string(UdpSocket::kDatagramBytesMax + 1, 'x'));
  say(*there, to, std::string(UdpSocket::kDatagramBytesMax, 'y'));
  say(*there, to, "");
  say(*there, to, "5");
  EXPECT_THAT(come(*here, 3).texts, ElementsAre("1", std::string(UdpSocket::kDatagramBytesMax, 'y')));
  EXPECT_THAT(come(*here, 3).texts, ElementsAre("", "5"));
  Came none;
  here->receive(3, [&none](const SocketAddress&, std::span<const std::byte>) { none.texts.emplace_back(); });
  EXPECT_THAT(none.texts, IsEmpty());
}

TEST(Udp, SaysWhyAnAddressCannotBeHad) {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto first = UdpSocket::open({"127.0.0.1", port});
  ASSERT_TRUE(first);
  const auto second = UdpSocket::open({"127.0.0.1", port});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kDuplicate);
  EXPECT_THAT(second.error().message(), HasSubstr("(UDP)"));
  EXPECT_EQ(UdpSocket::open({"203.0.113.77", port}).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace muster::control
