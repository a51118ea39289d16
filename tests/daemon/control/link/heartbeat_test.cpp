#include "daemon/control/link/heartbeat.hpp"

#include "tests/daemon/control/tls_pair.hpp"

#include <gtest/gtest.h>

namespace muster::control {
namespace {

using namespace std::chrono_literals;

Heartbeat::Key key_of(int seed) {
  Heartbeat::Key key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = std::byte(static_cast<std::size_t>(seed) * 31 + i);
  return key;
}

constexpr Heartbeat kOne{.from = 3, .to = 1, .sequence = 0x0102030405060708, .silence = 1234ms};

HeartbeatReader reader(const Heartbeat::Key& key = key_of(1)) {
  return {key, 3, 1};
}

TEST(Heartbeats, ArriveAsTheyWereSealed) {
  for (const Nanos silence : {Nanos(0), Nanos(1ms), Nanos(1'400ms), Nanos(24h * 40), Nanos::max()}) {
    Heartbeat one = kOne;
    one.silence = silence;
    const auto bytes = seal(one, key_of(1));
    ASSERT_TRUE(bytes) << bytes.error().text();
    EXPECT_EQ(sender_of(*bytes), 3u);
    const auto opened = reader().open(*bytes);
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->from, 3u);
    EXPECT_EQ(opened->to, 1u);
    EXPECT_EQ(opened->sequence, kOne.sequence);
    EXPECT_EQ(opened->silence, silence);
  }
}

// Goal:   a silence that does not fit is a long one; none that was measured says that a node is given up.
TEST(Heartbeats, CutSilencesToWhatFits) {
  Heartbeat one = kOne;
  one.silence = Nanos::max() - 1ns;
  const auto opened = reader().open(*seal(one, key_of(1)));
  ASSERT_TRUE(opened);
  EXPECT_GT(opened->silence, 24h * 49);
  EXPECT_LT(opened->silence, Nanos::max());
  one.silence = -1s;
  EXPECT_EQ(reader().open(*seal(one, key_of(1)))->silence, Nanos(0));
}

// The bytes that the page in daemon/control promises.
TEST(Heartbeats, HaveTheirFieldsWhereThePageSaysSo) {
  const Heartbeat::Bytes bytes = *seal(kOne, key_of(1));
  const auto at = [&bytes](std::size_t i) { return std::to_integer<int>(bytes[i]); };
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 4), "MSHB");
  EXPECT_EQ(at(7), 1);
  EXPECT_EQ(at(11), 3);
  EXPECT_EQ(at(15), 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(at(16 + static_cast<std::size_t>(i)), i + 1);
  EXPECT_EQ(at(26) << 8 | at(27), 1234);
}

TEST(Heartbeats, ThatWereChangedAreNotOpened) {
  const Heartbeat::Bytes good = *seal(kOne, key_of(1));
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const unsigned bit : {0u, 3u, 7u}) {
      Heartbeat::Bytes changed = good;
      changed[i] ^= std::byte(1u << bit);
      EXPECT_FALSE(reader().open(changed)) << "byte " << i << ", bit " << bit;
    }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(reader().open(std::span(good).first(length))) << length;
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back(std::byte(0));
  EXPECT_FALSE(reader().open(longer));
  EXPECT_FALSE(sender_of(longer));
}

TEST(Heartbeats, AreOpenedOnce) {
  HeartbeatReader of_peer = reader();
  const auto with = [](std::uint64_t sequence) {
    Heartbeat one = kOne;
    one.sequence = sequence;
    return *seal(one, key_of(1));
  };
  EXPECT_FALSE(of_peer.open(with(0))) << "sequences begin with 1";
  EXPECT_TRUE(of_peer.open(with(5)));
  EXPECT_FALSE(of_peer.open(with(5))) << "repeated";
  EXPECT_FALSE(of_peer.open(with(4))) << "late";
  Heartbeat::Bytes forged = with(1'000);
  forged.back() ^= std::byte(1);
  EXPECT_FALSE(of_peer.open(forged));
  EXPECT_TRUE(of_peer.open(with(6))) << "what was forged moves nothing";
  EXPECT_TRUE(of_peer.open(with(~std::uint64_t{0})));
}

TEST(Heartbeats, OfAnotherKeyOrWayAreNotOpened) {
  EXPECT_FALSE(reader(key_of(2)).open(*seal(kOne, key_of(1))));
  Heartbeat other = kOne;
  other.from = 2;
  EXPECT_FALSE(reader().open(*seal(other, key_of(1)))) << "it calls itself another";
  other = kOne;
  other.to = 2;
  EXPECT_FALSE(reader().open(*seal(other, key_of(1)))) << "it is for another";
  std::swap(other.from, other.to);
  EXPECT_FALSE(reader().open(*seal(other, key_of(1))));
}

// Goal:   both ends of a connection draw the same two keys, one for each direction, and no other connection
//         has them.
TEST(Heartbeats, HaveKeysOfTheirConnection) {
  const test::Lab lab;
  const Credentials a = lab.of("a"), b = lab.of("b");
  const Credentials secret_a = *Credentials::of_secret("lab-a", "a", std::string(40, 's'));
  const Credentials secret_b = *Credentials::of_secret("lab-a", "b", std::string(40, 's'));
  std::vector<Heartbeat::Key> keys;
  const auto draw = [&keys](const Credentials& client, const Credentials& server) {
    test::TlsPair pair(client, server, "b");
    EXPECT_EQ(pair.client.exported(kHeartbeatsOfClient).error().code(), Code::kState);
    pair.run();
    for (const char* label : {kHeartbeatsOfClient, kHeartbeatsOfServer}) {
      const auto at_client = pair.client.exported(label);
      const auto at_server = pair.server.exported(label);
      ASSERT_TRUE(at_client && at_server) << pair.client_says.text() << pair.server_says.text();
      EXPECT_EQ(*at_client, *at_server);
      keys.push_back(*at_client);
    }
  };
  draw(a, b);
  draw(a, b);
  draw(secret_a, secret_b);
  keys.push_back({});
  ASSERT_EQ(keys.size(), 7u);
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
}

}  // namespace
}  // namespace muster::control
