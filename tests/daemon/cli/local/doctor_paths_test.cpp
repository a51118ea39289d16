#include "daemon/cli/local/doctor_paths.hpp"

#include "daemon/cli/local/doctor_command.hpp"
#include "daemon/control/link/path_echo.hpp"

#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::cli {
namespace {

using control::PathTrial;
using Stage = PathTrial::Stage;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Verdict = Check::Verdict;

Check of(Stage stage, Status why) {
  return path_check("node02", "eth0 (10.66.0.1, MTU 9000)", "10.66.0.2",
                    PathTrial{stage, std::move(why), std::chrono::microseconds(1500), 8948});
}

TEST(DoctorPaths, NameInterfaceAddressAndSetting) {
  const Status late = failure(Code::kTimeout, "no answer");
  const Check good = of(Stage::kGood, {});
  EXPECT_EQ(good.verdict, Verdict::kGood);
  EXPECT_EQ(good.says,
            "256 KiB from eth0 (10.66.0.1, MTU 9000) to 10.66.0.2 and back in 1.5 ms, 8948 bytes a packet");
  for (const Stage stage : {Stage::kConnect, Stage::kSmall, Stage::kThere, Stage::kBack}) {
    const Check bad = of(stage, late);
    EXPECT_EQ(bad.verdict, Verdict::kFailure);
    EXPECT_THAT(bad.says, AllOf(HasSubstr("eth0 (10.66.0.1, MTU 9000)"), HasSubstr("10.66.0.2"),
                                HasSubstr("no answer")));
    if (stage != Stage::kSmall) EXPECT_THAT(bad.fix, HasSubstr("cluster.interfaces"));
  }
  EXPECT_THAT(of(Stage::kThere, late).says, HasSubstr("small messages pass"));
  EXPECT_THAT(of(Stage::kThere, late).fix, HasSubstr("MTU"));
  EXPECT_THAT(of(Stage::kBack, late).says, HasSubstr("does not come back"));
}

TEST(DoctorPaths, SayOfEachNodeWhyItsWayWasNotTried) {
  const Json cluster{
      {"path", {{"uses", "eth0 (127.0.0.1)"}, {"address", "127.0.0.1"}}},
      {"peers",
       {{{"node", "away"}, {"state", "away"}, {"address", "n2:7733"}, {"why", "Connection refused"}},
        {{"node", "wrong"}, {"state", "up"}, {"path", {{"trouble", "cluster.interfaces: 'eth7' matches"}}}},
        {{"node", "older"}, {"state", "up"}},
        {{"node", "closed"}, {"state", "up"}, {"path", {{"address", "127.0.0.1"}, {"port", 1}}}}}}};
  const ClusterPaths found = try_paths(cluster, std::chrono::seconds(20));
  EXPECT_EQ(found.uses, "eth0 (127.0.0.1)");
  ASSERT_EQ(found.paths.size(), 4u);
  EXPECT_EQ(found.paths[0].verdict, Verdict::kWarning);
  EXPECT_EQ(found.paths[0].says, "not tried: the node at n2:7733 is away: Connection refused");
  EXPECT_EQ(found.paths[1].verdict, Verdict::kFailure);
  EXPECT_EQ(found.paths[1].says, "the node says: cluster.interfaces: 'eth7' matches");
  EXPECT_THAT(found.paths[2].says, HasSubstr("does not say by which address"));
  EXPECT_EQ(found.paths[3].verdict, Verdict::kFailure);
  EXPECT_THAT(found.paths[3].says, HasSubstr("eth0 (127.0.0.1) does not reach 127.0.0.1: connecting: "));
  const ClusterPaths late = try_paths(cluster, Nanos(0));
  EXPECT_EQ(late.paths[3].says, "not tried: no time was left");
}

// Goal:   no way is tried from a node that has none, and what is wrong with that node is said once.
TEST(DoctorPaths, SayThatThisNodeHasNoWay) {
  const Json cluster{
      {"path", {{"trouble", "cluster.interfaces: 'eth7' matches no network device"}}},
      {"peers", {{{"node", "good"}, {"state", "up"}, {"path", {{"address", "127.0.0.1"}, {"port", 9}}}}}}};
  const ClusterPaths found = try_paths(cluster, std::chrono::seconds(20));
  EXPECT_EQ(found.trouble, "cluster.interfaces: 'eth7' matches no network device");
  ASSERT_EQ(found.paths.size(), 1u);
  EXPECT_EQ(found.paths[0].verdict, Verdict::kWarning);
  EXPECT_EQ(found.paths[0].says, "not tried: this node exchanges data by no interface");
  MachineFacts facts;
  facts.cluster = found;
  const std::vector<Check> checks = examine(facts);
  EXPECT_EQ(std::count_if(checks.begin(), checks.end(),
                          [](const Check& check) { return check.says.find("'eth7'") != std::string::npos; }),
            1);
}

// Goal:   the way of IPv6 is tried with a large message like any other, to each node with its own verdict.
TEST(DoctorPaths, AreTriedByIpv6AndToEachNode) {
  control::Loop loop;
  const auto here = IpAddress::parse("::1");
  const auto echo = control::PathEcho::open(loop, *here);
  if (!echo) GTEST_SKIP() << echo.error().text();
  std::thread far([&loop] { loop.run(); });
  const auto peer = [](const char* node, std::uint16_t port) {
    return Json{{"node", node}, {"state", "up"}, {"path", {{"address", "::1"}, {"port", port}}}};
  };
  const Json cluster{
      {"path", {{"uses", "lo (::1, MTU 65536)"}, {"address", "::1"}}},
      {"peers", {peer("one", (*echo)->port()), peer("closed", 1), peer("two", (*echo)->port())}}};
  const ClusterPaths found = try_paths(cluster, std::chrono::seconds(20));
  loop.stop();
  far.join();
  ASSERT_EQ(found.paths.size(), 3u);
  for (const std::size_t good : {0u, 2u}) {
    EXPECT_EQ(found.paths[good].verdict, Verdict::kGood) << found.paths[good].says;
    EXPECT_THAT(found.paths[good].says, HasSubstr("256 KiB from lo (::1, MTU 65536) to ::1 and back"));
  }
  EXPECT_EQ(found.paths[1].verdict, Verdict::kFailure);
  EXPECT_THAT(found.paths[1].says, HasSubstr("does not reach ::1"));
}

// Goal:   a node that is down, or in words that no daemon of this release says, has a line of its own.
TEST(DoctorPaths, SayWhatIsWrongWithOddNodes) {
  const Json cluster{
      {"path", {{"uses", "eth0 (127.0.0.1)"}, {"address", "127.0.0.1"}}},
      {"peers",
       {{{"node", "lost"}, {"state", "lost"}, {"address", "[fd66::2]:7733"}},
        {{"node", "named"}, {"state", "up"}, {"path", {{"address", "node02"}, {"port", 7}}}},
        {{"node", "none"}, {"state", "up"}, {"path", {{"uses", "what the library chooses"}}}}}}};
  const ClusterPaths found = try_paths(cluster, std::chrono::seconds(20));
  ASSERT_EQ(found.paths.size(), 3u);
  EXPECT_EQ(found.paths[0].says, "not tried: the node at [fd66::2]:7733 is lost");
  EXPECT_THAT(found.paths[0].fix, HasSubstr("MTU"));
  for (const std::size_t odd : {1u, 2u}) {
    EXPECT_EQ(found.paths[odd].verdict, Verdict::kWarning);
    EXPECT_THAT(found.paths[odd].says, HasSubstr("does not say by which address"));
  }
}

TEST(DoctorPaths, AreOneLineBeyondSixteenThatAreGood) {
  MachineFacts facts;
  facts.cluster.uses = "eth0";
  for (int i = 0; i < 40; ++i)
    facts.cluster.paths.push_back(
        {fmt::format("node{}", i), i == 30 ? Verdict::kFailure : Verdict::kGood, "", ""});
  const std::vector<Check> checks = examine(facts);
  const auto paths = std::count_if(checks.begin(), checks.end(),
                                   [](const Check& check) { return check.name.starts_with("path to "); });
  EXPECT_EQ(paths, 17);
  EXPECT_EQ(checks.back().says, "23 others are good");
}

}  // namespace
}  // namespace muster::cli
