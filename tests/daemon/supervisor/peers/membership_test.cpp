#include "daemon/supervisor/peers/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using control::Json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Roster roster_at(std::string here) {
  Roster roster;
  roster.cluster = "lab-a";
  roster.here = std::move(here);
  for (const char* name : {"node01", "node02", "node03"}) roster.members.push_back({name, {name, 7733}});
  roster.configuration = {"port 7733", "job train: 4 ranks"};
  return roster;
}

class Members : public ::testing::Test {
 protected:
  const Roster first_roster_ = roster_at("node01");
  const Roster second_roster_ = roster_at("node02");
  Membership first_{first_roster_, Instant(0)};
  Membership second_{second_roster_, Instant(0)};
};

TEST_F(Members, AreDialledByThoseThatStandBeforeThem) {
  EXPECT_THAT(first_.due(Instant(0)), ElementsAre("node02", "node03"));
  EXPECT_THAT(second_.due(Instant(0)), ElementsAre("node03"));
  EXPECT_THAT(second_.due(Instant(100s)), IsEmpty()) << "it is being reached";
  EXPECT_FALSE(second_.next_due());
}

TEST_F(Members, AreDialledAgainLaterAndLater) {
  Instant now(0);
  std::vector<Nanos> waits;
  for (int attempt = 0; attempt < 8; ++attempt) {
    ASSERT_THAT(second_.due(now), ElementsAre("node03"));
    EXPECT_EQ(second_.ended("node03", failure(Code::kDaemonLost, "no route"), now), attempt == 0)
        << "the same reason is no news";
    ASSERT_TRUE(second_.next_due());
    waits.push_back(*second_.next_due() - now);
    EXPECT_THAT(second_.due(*second_.next_due() - 1ns), IsEmpty());
    now = *second_.next_due();
  }
  EXPECT_THAT(waits, ElementsAre(100ms, 200ms, 400ms, 800ms, 1s, 1s, 1s, 1s));
  second_.up("node03", {{"version", "1.2"}}, now);
  EXPECT_TRUE(second_.is_up("node03"));
  EXPECT_EQ(second_.peers().at("node03").version, "1.2");
  second_.ended("node03", failure(Code::kDaemonLost, "gone"), now);
  EXPECT_FALSE(second_.is_up("node03"));
  EXPECT_EQ(*second_.next_due() - now, 100ms) << "after it was up, at once";
}

TEST_F(Members, AreTakenByTheNameThatTheyHaveProved) {
  const Json greeting = second_.greeting(Json::array());
  for (const char* proved : {"node02", ""}) EXPECT_EQ(*first_.check(proved, "", greeting), "node02");
  EXPECT_EQ(*first_.check("node02", "node02", greeting), "node02");
  const auto lies = first_.check("node03", "", greeting);
  EXPECT_EQ(lies.error().code(), Code::kDenied);
  EXPECT_THAT(lies.error().message(), AllOf(HasSubstr("calls itself node02"), HasSubstr("is node03")));
  EXPECT_THAT(first_.check("node02", "node03", greeting).error().message(), HasSubstr("was expected"));
  EXPECT_THAT(second_.check("node02", "", greeting).error().message(), HasSubstr("as this node does"));
}

TEST_F(Members, AreThoseOfTheClusterFile) {
  const Roster stranger_roster = roster_at("node04");
  const Membership stranger(stranger_roster, Instant(0));
  const auto refused = first_.check("node04", "", stranger.greeting(Json::array()));
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("node04"), HasSubstr("no member")));
  Roster other = roster_at("node02");
  other.cluster = "lab-b";
  const Membership other_cluster(other, Instant(0));
  EXPECT_THAT(first_.check("node02", "", other_cluster.greeting(Json::array())).error().message(),
              AllOf(HasSubstr("lab-b"), HasSubstr("lab-a")));
}

TEST_F(Members, HearWhatDiffersInTheirConfiguration) {
  Roster other = roster_at("node02");
  other.configuration.back() = "job train: 8 ranks";
  const Membership differs(other, Instant(0));
  const auto refused = first_.check("node02", "", differs.greeting(Json::array()));
  EXPECT_EQ(refused.error().code(), Code::kConfig);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("'job train: 4 ranks' on node node01"),
                                               HasSubstr("'job train: 8 ranks' on node node02")));
  other.configuration.pop_back();
  const Membership lacks(other, Instant(0));
  EXPECT_THAT(first_.check("node02", "", lacks.greeting(Json::array())).error().message(),
              HasSubstr("nothing on node node02"));
  // Too long for a greeting: the hashes are compared all the same.
  other.configuration.assign(4000, "host");
  const Membership huge(other, Instant(0));
  const Json greeting = huge.greeting(Json::array());
  EXPECT_FALSE(greeting.contains("lines"));
  EXPECT_EQ(first_.check("node02", "", greeting).error().code(), Code::kConfig);
}

TEST_F(Members, MustSpeakTheSameProtocol) {
  Json greeting = second_.greeting(Json::array());
  greeting["protocol"] = kPeerProtocol + 1;
  EXPECT_EQ(first_.check("node02", "", greeting).error().code(), Code::kVersion);
}

TEST_F(Members, AreRefusedForGreetingsThatAreNone) {
  const Json good = second_.greeting(Json::array());
  EXPECT_EQ(first_.check("", "", Json::array()).error().code(), Code::kProtocol);
  for (const char* field : {"node", "cluster", "protocol"})
    for (const Json& bad : {Json(nullptr), Json(-1), Json(std::string(1000, 'x')), Json::array()}) {
      Json greeting = good;
      greeting[field] = bad;
      EXPECT_EQ(first_.check("", "", greeting).error().code(), Code::kProtocol) << field << bad;
    }
  for (const char* field : {"configuration", "lines"}) {
    Json greeting = good;
    greeting["configuration"] = 7;
    greeting[field] = {{"a", 1}};
    EXPECT_EQ(first_.check("", "", greeting).error().code(), Code::kConfig);
  }
}

}  // namespace
}  // namespace muster::supervisor
