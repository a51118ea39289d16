#include "daemon/control/packet.hpp"

#include <cstdio>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

// Goal:   a message of an engine, which runs with its job's rights, takes no more memory than it may.
TEST(Packet, TakesOfAnEngineOnlySoMuch) {
  const Json many{{"list", std::vector<int>(kOfEngines.items_max, 1)}};
  const Json large{{"text", std::string(kOfEngines.bytes_max, 'x')}};
  for (const Json* body : {&many, &large}) {
    Pair pair;
    ASSERT_TRUE(send_packet(pair.left, MessageKind::kReply, 1, *body).ok());
    EXPECT_EQ(receive_packet(pair.right, kOfEngines).error().code(), Code::kProtocol);
    ASSERT_TRUE(send_packet(pair.left, MessageKind::kReply, 2, *body).ok());
    EXPECT_TRUE(receive_packet(pair.right)) << "of one that is trusted";
  }
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

// A descriptor for a body is read only if it is a memory file that cannot shrink: of any other file a read
// may last as long as the sender likes.
TEST(Packet, ReadsNoBodyButFromSealedMemory) {
  const auto cbor = Json::to_cbor(Json{{"command", "status"}});
  const auto with = [&](int fd) {
    EXPECT_EQ(write(fd, cbor.data(), cbor.size()), static_cast<ssize_t>(cbor.size()));
    std::vector<shm::Descriptor> body;
    body.emplace_back(fd);
    return parse_packet(datagram({}), std::move(body));
  };
  const auto sealed = [] {
    const int fd = memfd_create("body", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
  };
  EXPECT_EQ(with(fileno(std::tmpfile())).error().code(), Code::kProtocol) << "a file";
  EXPECT_EQ(with(memfd_create("body", MFD_CLOEXEC | MFD_ALLOW_SEALING)).error().code(), Code::kProtocol)
      << "memory that may shrink";
  const auto good = with(sealed());
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->body["command"], "status");
}

// Goal:   a process without free descriptors loses what came with a packet, not the connection.
// Method: a child uses them all up.
TEST(Packet, SaysThatDescriptorsCouldNotBeTaken) {
  Pair pair;
  const int descriptor = 0;
  const auto passed = std::span(&descriptor, 1);
  ASSERT_TRUE(send_packet(pair.left, MessageKind::kReply, 7, success({{"bytes", 5}}), passed).ok());
  ASSERT_TRUE(send_packet(pair.left, MessageKind::kCommand, 8, {{"command", "attach"}}, passed).ok());
  ASSERT_TRUE(send_packet(pair.left, MessageKind::kReply, 9, success({{"bytes", 6}})).ok());
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    while (dup(0) >= 0) {
    }
    const auto reply = receive_packet(pair.right);
    if (!reply || reply->serial != 7 || result_of(*reply).error().code() != Code::kNoResource) _exit(1);
    const auto command = receive_packet(pair.right);
    if (!command || command->serial != 8 || !command->descriptors.empty()) _exit(2);
    const auto last = receive_packet(pair.right);
    _exit(last && result_of(*last).has_value() ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
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

// Goal:   a refusal is one, whatever status it carries.
TEST(Packet, HearsNoYesInARefusal) {
  for (const std::int64_t status : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 32,
                                    (std::int64_t{1} << 32) - 101, std::int64_t{-7}}) {
    const auto packet =
        parse_packet(datagram(Json::to_cbor(Json{{"ok", false}, {"status", status}, {"error", "no"}})), {});
    ASSERT_TRUE(packet) << packet.error().text();
    const auto result = result_of(*packet);
    ASSERT_FALSE(result) << status;
    EXPECT_EQ(result.error().code(), Code::kProtocol) << status;
  }
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
  spec.digests = 16;
  spec.network = "ofi";
  spec.networks_directory = "/usr/lib/muster/networks";
  spec.link = {.trip_ns = 7, .bytes_per_us = 9};
  spec.tie_breaker = "node02";
  spec.interfaces = {{"10.0.0.2", "fd00::2"}, {"eth0", "^docker"}, "nodes[1].interfaces"};
  spec.reproducible = true;
  spec.endpoint = "/tmp/muster-run";
  spec.ends_with_run = true;
  spec.claim = ClaimRule::kToken;
  spec.cores = CoreRule::kDaemon;
  const auto back = job_from_json(to_json(spec));
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(to_json(*back), to_json(spec));
  EXPECT_EQ(back->link, spec.link);
  Json older = to_json(spec);  // of a release that did not have these fields
  for (const char* field :
       {"costs", "cores", "network", "networks_directory", "tie_breaker", "gathered", "endpoint",
        "ends_with_run", "interfaces", "reproducible", "link_trip_ns", "link_bytes_per_us"})
    older.erase(field);
  const auto filled = job_from_json(older);
  ASSERT_TRUE(filled) << filled.error().text();
  EXPECT_EQ(filled->network, "");
  EXPECT_EQ(filled->cores, CoreRule::kRanks);
  EXPECT_EQ(filled->link, LinkCosts());
  EXPECT_FALSE(filled->reproducible);
}

TEST(JobSpec, NamesTheFieldThatIsWrong) {
  JobSpec spec;
  spec.name = "train";
  spec.epoch = 1;
  spec.network = "ucx";
  spec.networks_directory = "/";
  ASSERT_TRUE(job_from_json(to_json(spec)));
  constexpr auto kDayAndMore = static_cast<std::uint64_t>(kJobDurationMax.count()) + 1;
  const std::vector<std::pair<std::string, Json>> wrong{{"name", "a b"},
                                                        {"world", 0},
                                                        {"mesh", 3},
                                                        {"claim", "both"},
                                                        {"epoch", -1},
                                                        {"flatten", 1},
                                                        {"workers", 5000},
                                                        {"cores", "all"},
                                                        {"cores", 2},
                                                        {"digests", config::kDigestsMax + 1},
                                                        {"network", "none"},
                                                        {"network", "../ucx"},
                                                        {"network", nullptr},
                                                        {"networks_directory", "networks"},
                                                        {"networks_directory", ""},
                                                        {"networks_directory", std::string(5000, '/')},
                                                        {"reproducible", 1},
                                                        {"link_trip_ns", 0},
                                                        {"link_bytes_per_us", 0},
                                                        {"gathered", 1},
                                                        {"interfaces", 1},
                                                        {"interfaces", {{"setting", "a"}, {"patterns", 1}}},
                                                        {"arena_bytes_max", kJobBytesMax + 1},
                                                        {"segment_bytes", kJobBytesMax + 1},
                                                        {"deadline_ns", kDayAndMore},
                                                        {"idle_spin_ns", kDayAndMore}};
  for (const auto& [key, value] : wrong) {
    Json json = to_json(spec);
    json[key] = value;
    const auto back = job_from_json(json);
    ASSERT_FALSE(back) << key;
    EXPECT_NE(back.error().message().find(key), std::string::npos) << back.error().message();
  }
}

TEST(JobSpec, TakesFromAUserWhatIsAUsersToSay) {
  JobSpec defaults;
  defaults.plans_max = 77;
  defaults.claim = ClaimRule::kOwner;
  const Json asked{{"name", "train"},
                   {"world", 4u},
                   {"mesh", "tp=4"},
                   {"claim", "token"},
                   {"flatten", Json::array({{{"name", "all"}, {"dims", {"tp"}}}})}};
  const auto spec = job_asked_for(asked, defaults, 1000);
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(spec->name, "train");
  EXPECT_EQ(spec->world, 4u);
  EXPECT_EQ(spec->mesh, "tp=4");
  EXPECT_EQ(spec->claim, ClaimRule::kToken);
  EXPECT_EQ(spec->flatten.size(), 1u);
  EXPECT_EQ(spec->owner, Identity(1000));
  EXPECT_EQ(spec->plans_max, 77u);
  EXPECT_EQ(job_asked_for(Json::array(), defaults, 1000).error().code(), Code::kBadArgument);
  for (const char* field : {"plans_max", "network", "networks_directory", "reproducible"}) {
    Json with_limit = asked;
    with_limit[field] = 78;
    EXPECT_NE(job_asked_for(with_limit, defaults, 1000).error().message().find(field), std::string::npos);
  }
}

}  // namespace
}  // namespace muster::control
