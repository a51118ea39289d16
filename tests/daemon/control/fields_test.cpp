#include "daemon/control/fields.hpp"

#include "daemon/control/job_look.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

using ::testing::HasSubstr;

TEST(Fields, NameTheFirstThatIsBad) {
  const Json json{{"n", 5}, {"i", -1}, {"t", "abc"}, {"l", {1u, 2u}}, {"m", Json::object()}, {"y", true}};
  Fields fields("this");
  EXPECT_EQ(fields.number(json, "n", 5), 5u);
  EXPECT_EQ(fields.index(json, "i"), -1);
  EXPECT_EQ(fields.text(json, "t", 2), "ab");
  EXPECT_EQ(fields.ranks(json, "l", 3), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_TRUE(fields.map(json, "m").empty());
  EXPECT_TRUE(fields.yes(json, "y"));
  EXPECT_TRUE(fields.why().ok());
  EXPECT_EQ(fields.number(json, "n", 4), 0u);
  EXPECT_TRUE(fields.list(json, "m").empty());
  EXPECT_TRUE(fields.map(json, "l").empty());
  EXPECT_TRUE(fields.ranks(json, "l", 2).size() == 1);
  EXPECT_EQ(fields.why().code(), Code::kProtocol);
  EXPECT_EQ(fields.why().message(), "this has no 'n', or a bad one");
  Fields none("that");
  EXPECT_EQ(none.text(Json::array(), "t"), "");
  EXPECT_THAT(none.why().message(), HasSubstr("that has no 't'"));
}

// Goal:   a text takes no more memory or stack than it may, whatever it says.
TEST(JsonIn, IsBounded) {
  EXPECT_EQ(json_in("{\"a\": [1, 2]}", 100, "it")->at("a").size(), 2u);
  const auto refused = [](const std::string& text, const char* why) {
    const auto json = json_in(text, 1000, "the text of node1");
    ASSERT_FALSE(json) << text.substr(0, 50);
    EXPECT_THAT(json.error().message(), HasSubstr("the text of node1"));
    EXPECT_THAT(json.error().message(), HasSubstr(why));
  };
  refused("", "not JSON");
  refused("{\"a\": ", "not JSON");
  refused("[1] 2", "not JSON");
  refused(std::string(100'000, '['), "deeper than");
  refused(std::string(20, '[') + std::string(20, ']'), "deeper than");
  std::string many = "[0";
  for (int i = 0; i < 2000; ++i) many += ",[]";
  refused(many + "]", "more than 1000 values");
}

JobLook a_look() {
  JobLook look;
  look.engine_pid = 77;
  look.beat = Instant(5'000);
  look.at = Instant(5'010);
  look.ranks.resize(2);
  look.ranks[0] = {1, 2, 3};
  look.ranks[0][static_cast<std::size_t>(shm::RankCount::kRank)] = 4;
  look.ranks[1][static_cast<std::size_t>(shm::RankCount::kRank)] = 5;
  look.groups.resize(2);
  look.groups[1] = {{2, 8}, "tp"};
  return look;
}

TEST(JobLook, IsReadAsItWasWritten) {
  const auto read = look_in(look_json(a_look()).dump(), {4, 5}, "it");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->engine_pid, 77);
  EXPECT_EQ(read->beat, Instant(5'000));
  EXPECT_EQ(read->at, Instant(5'010));
  EXPECT_EQ(read->ranks, a_look().ranks);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_EQ(read->groups[0].value(shm::GroupCount::kMembers), 0u);
  EXPECT_EQ(read->groups[1].name, "tp");
  EXPECT_EQ(read->groups[1].values, a_look().groups[1].values);
}

TEST(JobLook, IsReadFromNobodyWhoLies) {
  const Json good = look_json(a_look());
  EXPECT_FALSE(look_in(good.dump(), {4}, "it")) << "a rank of others";
  EXPECT_FALSE(look_in(good.dump(), {4, 6}, "it")) << "not its rank";
  EXPECT_FALSE(look_in(good.dump(), {4, 5, 6}, "it")) << "a rank less";
  const auto without = [&](const char* field, const Json& other) {
    Json bad = good;
    bad[field] = other;
    const auto read = look_in(bad.dump(), {4, 5}, "it");
    ASSERT_FALSE(read) << field << other;
    EXPECT_EQ(read.error().code(), Code::kProtocol);
  };
  without("engine_pid", -1);
  without("beat_ns", -5);
  without("beat_ns", ~std::uint64_t{0});
  without("silent_ns", "long");
  without("ranks", 5);
  without("ranks", {1, 2});
  without("ranks", Json::array({std::vector<int>(23), std::vector<int>(23)}));
  without("groups", Json::object());
  without("groups", Json::array({5}));
  without("groups", Json::array({{{"name", "x"}, {"values", Json::array({1})}}}));
  without("groups", Json::array({{{"name", 5}, {"values", std::vector<int>(24)}}}));
  without("groups", Json::array({{{"name", "x"}, {"values", std::vector<double>(24, 0.5)}}}));
  without("groups", Json(std::vector<std::nullptr_t>((1 << 16) + 1)));
}

}  // namespace
}  // namespace muster::control
