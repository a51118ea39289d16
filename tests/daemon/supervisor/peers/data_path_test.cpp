#include "daemon/supervisor/peers/data_path.hpp"

#include "tests/daemon/supervisor/lone_peers.hpp"
#include "tests/support/manual_clock.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::HasSubstr;

TEST(DataPath, SaysInterfaceAddressAndPort) {
  control::Loop loop;
  DataPath path(loop, "");
  EXPECT_TRUE(path.described().is_null());
  const InterfaceRule rule{{"127.0.0.3"}, {}, "cluster.interfaces"};
  const Json first = path.describe(rule);
  EXPECT_THAT(first.at("uses").get<std::string>(), HasSubstr("lo (127.0.0.3, MTU "));
  EXPECT_EQ(first.at("address"), "127.0.0.3");
  EXPECT_GT(first.at("port"), 0);
  EXPECT_EQ(path.describe(rule), first) << "the port stays";
  EXPECT_EQ(path.describe({{"127.0.0.4"}, {}, "cluster.interfaces"}).at("address"), "127.0.0.4");
}

TEST(DataPath, SaysWhatIsWrongWithTheSetting) {
  control::Loop loop;
  DataPath path(loop, "");
  const Json said = path.describe({{"127.0.0.3"}, {"none7"}, "nodes[1].interfaces"});
  EXPECT_THAT(said.at("trouble").get<std::string>(),
              HasSubstr("nodes[1].interfaces: 'none7' matches no network device; there are lo (127.0.0.1"));
  EXPECT_FALSE(said.contains("port"));
}

// Goal:   a node of IPv6 alone can be tried as well, and a change of the address opens another port there.
TEST(DataPath, IsOfIpv6Too) {
  control::Loop loop;
  DataPath path(loop, "");
  const Json six = path.describe({{"::1"}, {}, "cluster.interfaces"});
  if (six.contains("trouble")) GTEST_SKIP() << six.at("trouble");
  EXPECT_THAT(six.at("uses").get<std::string>(), HasSubstr("lo (::1, MTU "));
  EXPECT_EQ(six.at("address"), "::1");
  EXPECT_GT(six.at("port"), 0);
  EXPECT_EQ(
      DataPath::of_peer(six),
      (Json{{"uses", six.at("uses")}, {"why", six.at("why")}, {"address", "::1"}, {"port", six.at("port")}}));
  EXPECT_EQ(path.describe({{"127.0.0.1"}, {}, "cluster.interfaces"}).at("address"), "127.0.0.1");
}

// Goal:   what is wrong goes away with its cause, and stays named as long as it is there.
TEST(DataPath, SaysNothingWrongOnceTheSettingIsRight) {
  control::Loop loop;
  DataPath path(loop, "");
  for (const char* pattern : {"=none7", "203.0.113.0/24", "2001:db8:7::/48"}) {
    const Json said = path.describe({{"127.0.0.3"}, {pattern}, "cluster.interfaces"});
    EXPECT_THAT(said.value("trouble", ""),
                HasSubstr(fmt::format("cluster.interfaces: '{}' matches", pattern)));
    EXPECT_EQ(path.described(), said);
  }
  const Json good = path.describe({{"127.0.0.3"}, {"127.0.0.0/8"}, "cluster.interfaces"});
  EXPECT_FALSE(good.contains("trouble")) << good;
  EXPECT_EQ(good.at("address"), "127.0.0.3");
}

// Goal:   the daemon's own variable leaves the choice to the library; the path is tried at the node's
// address.
TEST(DataPath, IsTriedAtTheNodesAddressWhereALibraryChooses) {
  control::Loop loop;
  DataPath path(loop, "ucx");
  setenv("UCX_NET_DEVICES", "eth1", 1);
  const Json said = path.describe({{"127.0.0.3"}, {"=none7"}, "cluster.interfaces"});
  unsetenv("UCX_NET_DEVICES");
  EXPECT_EQ(said.at("uses"), "what the library chooses");
  EXPECT_THAT(said.at("why").get<std::string>(), HasSubstr("UCX_NET_DEVICES=eth1"));
  EXPECT_EQ(said.at("address"), "127.0.0.3");
  EXPECT_GT(said.at("port"), 0);
}

TEST(DataPath, TakesFromAPeerWhatCanBe) {
  const Json good{{"uses", "eth0"}, {"why", "because"}, {"address", "fd00::1"}, {"port", 7u}};
  EXPECT_EQ(DataPath::of_peer(good), good);
  const Json port = {{"uses", "eth0"}, {"why", "because"}};
  for (const Json& bad : std::vector<Json>{0u, 65536u, -1, "7", nullptr}) {
    Json said = good;
    said["port"] = bad;
    EXPECT_EQ(DataPath::of_peer(said), port) << bad;
  }
  for (const Json& bad : std::vector<Json>{"node02", "fd00::1/64", 7, std::string(100'000, '1')}) {
    Json said = good;
    said["address"] = bad;
    EXPECT_EQ(DataPath::of_peer(said), port);
  }
  for (const Json& said :
       std::vector<Json>{nullptr, 1, "x", Json::array({1}), {{"uses", 7}}, {{"more", "x"}}})
    EXPECT_EQ(DataPath::of_peer(said), Json::object()) << said;
  const Json longer = DataPath::of_peer({{"trouble", std::string(100'000, 'x')}});
  EXPECT_LE(longer.at("trouble").get<std::string>().size(), 1024u);
}

// Goal:   nodes tell each other where the path to them can be tried, and by which address each is reached.
TEST(DataPath, IsToldToEachPeer) {
  control::Loop loop;
  muster::test::ManualClock clock;
  const Roster roster = plain_roster(2);
  LonePeer here(loop, clock, roster, 0), other(loop, clock, roster, 1);
  other.open();
  here.open();
  const SteadyClock steady;
  const Instant end = steady.now() + std::chrono::seconds(20);
  while ((here.up.empty() || other.up.empty()) && steady.now() < end) loop.turn();
  const Json own = other.peers.report().at("path");
  EXPECT_EQ(own.at("address"), "127.0.0.2");
  const Json told = here.peers.report().at("peers").at(0).at("path");
  EXPECT_EQ(told.at("port"), own.at("port"));
  EXPECT_EQ(told.at("uses"), own.at("uses"));
  control::JobSpec spec;
  spec.interfaces.addresses = {"10.0.0.1"};
  spec.world = *World::build({"node0", "node1"}, std::vector<std::uint32_t>{0, 1}, NodeIndex(1));
  EXPECT_EQ(other.peers.interfaces_for(spec).addresses, (std::vector<std::string>{"10.0.0.1", "127.0.0.2"}));
}

}  // namespace
}  // namespace muster::supervisor
