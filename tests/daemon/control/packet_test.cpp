#include "daemon/control/packet.hpp"

#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

using shm::MessageKind;

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    left.reset(ends[0]);
    right.reset(ends[1]);
  }
  shm::Descriptor left, right;
};

std::vector<std::byte> datagram(const std::vector<std::uint8_t>& body) {
  shm::MessageHeader header;
  header.kind = MessageKind::kCommand;
  header.bytes = static_cast<std::uint32_t>(sizeof header + body.size());
  std::vector<std::byte> bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  return bytes;
}

TEST(Packet, CarriesABodyAndDescriptors) {
  Pair pair;
  const shm::Descriptor passed(dup(0));
  const int descriptor = passed.get();
  ASSERT_TRUE(
      send_packet(pair.left, MessageKind::kCommand, 9, {{"command", "status"}}, std::span(&descriptor, 1))
          .ok());
  const auto packet = receive_packet(pair.right);
  ASSERT_TRUE(packet) << packet.error().text();
  EXPECT_EQ(packet->serial, 9u);
  EXPECT_EQ(packet->body["command"], "status");
  EXPECT_EQ(packet->descriptors.size(), 1u);
  EXPECT_EQ(receive_packet(pair.right).error().code(), Code::kPending);
}

TEST(Packet, CarriesABodyLargerThanADatagram) {
  Pair pair;
  const Json body{{"text", std::string(std::size_t{3} << 20, 'x')}};
  ASSERT_TRUE(send_packet(pair.left, MessageKind::kReply, 1, body).ok());
  const auto packet = receive_packet(pair.right);
  ASSERT_TRUE(packet) << packet.error().text();
  EXPECT_EQ(packet->body, body);
  EXPECT_TRUE(packet->descriptors.empty());
}

TEST(Packet, TellsThatTheOtherSideHasClosed) {
  Pair pair;
  pair.left.reset();
  EXPECT_EQ(receive_packet(pair.right).error().code(), Code::kDaemonLost);
}

TEST(Packet, RefusesBodiesThatAreNoMapsOrNestTooDeep) {
  EXPECT_FALSE(parse_packet(datagram(Json::to_cbor(Json::array({1, 2}))), {}));
  EXPECT_FALSE(parse_packet(datagram({0xff}), {}));
  EXPECT_FALSE(parse_packet(datagram({}), {}));
  // Lists and maps in each other, deep enough to overflow the stack of a parser that recurses.
  EXPECT_FALSE(parse_packet(datagram(std::vector<std::uint8_t>(60000, 0x81)), {}));
  std::vector<std::uint8_t> maps;
  for (int i = 0; i < 20000; ++i) maps.insert(maps.end(), {0xa1, 0x61, 'a'});
  EXPECT_FALSE(parse_packet(datagram(maps), {}));
  // A list that announces more than there is.
  EXPECT_FALSE(
      parse_packet(datagram({0xa1, 0x61, 'a', 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), {}));
  Json deep = Json::object();
  for (int i = 0; i < 10; ++i) deep = {{"a", deep}};
  EXPECT_TRUE(parse_packet(datagram(Json::to_cbor(deep)), {}));
}

TEST(Packet, SurvivesDamage) {
  const auto good =
      datagram(Json::to_cbor(Json{{"command", "job_create"}, {"spec", {{"world", 8}, {"mesh", "tp=2"}}}}));
  std::mt19937_64 random(3);
  for (int i = 0; i < 50000; ++i) {
    auto bytes = good;
    for (int changes = static_cast<int>(random() % 4) + 1; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto packet = parse_packet(bytes, {});
    if (packet) {
      EXPECT_TRUE(packet->body.is_object());
    }
  }
}

TEST(JobSpec, SurvivesTheWay) {
  JobSpec spec;
  spec.name = "train";
  spec.world = 8;
  spec.mesh = "dp_replicate=2,dp_shard=2,tp=2";
  spec.flatten = {{"dp_tp", {"dp_replicate", "dp_shard", "tp"}}};
  spec.epoch = 5;
  spec.claim = Claim::kToken;
  const auto back = job_from_json(to_json(spec));
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(to_json(*back), to_json(spec));
}

TEST(JobSpec, NamesTheFieldThatIsWrong) {
  JobSpec spec;
  spec.name = "train";
  spec.epoch = 1;
  const std::vector<std::pair<std::string, Json>> wrong{{"name", "a b"},   {"world", 0},  {"mesh", 3},
                                                        {"claim", "both"}, {"epoch", -1}, {"flatten", 1},
                                                        {"workers", 5000}};
  for (const auto& [key, value] : wrong) {
    Json json = to_json(spec);
    json[key] = value;
    const auto back = job_from_json(json);
    ASSERT_FALSE(back) << key;
    EXPECT_NE(back.error().message().find(key), std::string::npos) << back.error().message();
  }
}

}  // namespace
}  // namespace muster::control
