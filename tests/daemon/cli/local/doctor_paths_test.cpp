#include "daemon/cli/local/doctor_paths.hpp"

#include "daemon/cli/local/doctor_command.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::cli {
namespace {

using control::PathStage;
using control::PathTrial;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Verdict = PathFacts::Verdict;

PathFacts of(PathStage stage, Status why) {
  return path_facts("node02", "eth0 (10.66.0.1, MTU 9000)", "10.66.0.2",
                    PathTrial{stage, std::move(why), std::chrono::microseconds(1500), 8948});
}

TEST(DoctorPaths, NameInterfaceAddressAndSetting) {
  const Status late = failure(Code::kTimeout, "no answer");
  const PathFacts good = of(PathStage::kGood, {});
  EXPECT_EQ(good.verdict, Verdict::kGood);
  EXPECT_EQ(good.says,
            "256 KiB from eth0 (10.66.0.1, MTU 9000) to 10.66.0.2 and back in 1.5 ms, 8948 bytes a packet");
  for (const PathStage stage :
       {PathStage::kConnect, PathStage::kSmall, PathStage::kThere, PathStage::kBack}) {
    const PathFacts bad = of(stage, late);
    EXPECT_EQ(bad.verdict, Verdict::kBad);
    EXPECT_THAT(bad.says, AllOf(HasSubstr("eth0 (10.66.0.1, MTU 9000)"), HasSubstr("10.66.0.2"),
                                HasSubstr("no answer")));
    if (stage != PathStage::kSmall) EXPECT_THAT(bad.fix, HasSubstr("cluster.interfaces"));
  }
  EXPECT_THAT(of(PathStage::kThere, late).says, HasSubstr("small messages pass"));
  EXPECT_THAT(of(PathStage::kThere, late).fix, HasSubstr("MTU"));
  EXPECT_THAT(of(PathStage::kBack, late).says, HasSubstr("does not come back"));
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
  EXPECT_EQ(found.paths[0].verdict, Verdict::kUntried);
  EXPECT_EQ(found.paths[0].says, "not tried: the node at n2:7733 is away: Connection refused");
  EXPECT_EQ(found.paths[1].verdict, Verdict::kBad);
  EXPECT_EQ(found.paths[1].says, "the node says: cluster.interfaces: 'eth7' matches");
  EXPECT_THAT(found.paths[2].says, HasSubstr("does not say by which address"));
  EXPECT_EQ(found.paths[3].verdict, Verdict::kBad);
  EXPECT_THAT(found.paths[3].says, HasSubstr("eth0 (127.0.0.1) does not reach 127.0.0.1: connecting: "));
  const ClusterPaths late = try_paths(cluster, Nanos(0));
  EXPECT_EQ(late.paths[3].says, "not tried: no time was left");
}

TEST(DoctorPaths, AreOneLineBeyondSixteenThatAreGood) {
  MachineFacts facts;
  facts.cluster.uses = "eth0";
  for (int i = 0; i < 40; ++i)
    facts.cluster.paths.push_back(
        {fmt::format("node{}", i), i == 30 ? Verdict::kBad : Verdict::kGood, "", ""});
  const std::vector<Check> checks = examine(facts);
  const auto paths = std::count_if(checks.begin(), checks.end(),
                                   [](const Check& check) { return check.name.starts_with("path to "); });
  EXPECT_EQ(paths, 17);
  EXPECT_EQ(checks.back().says, "23 others are good");
}

}  // namespace
}  // namespace muster::cli
