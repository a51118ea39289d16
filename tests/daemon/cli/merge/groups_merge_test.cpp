#include "daemon/cli/merge/groups_merge.hpp"

#include "daemon/cli/render.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

// A node's groups in a mesh of ranks 0 to 3, of which node0 has the first two.
Json said(Json made = Json::array()) {
  const Json world{{"id", 0}, {"name", "world"}, {"names", {"world", "dp"}}, {"ranks", {0, 1, 2, 3}}};
  const Json low{{"id", 1}, {"name", "tp"}, {"names", {"tp"}}, {"ranks", {0, 1}}};
  return {{"hash", "cbda545b"},
          {"groups", {world, low}},
          {"made", std::move(made)},
          {"per_rank", {2, 2, 1, 1}},
          {"total", 2}};
}

NodeReport node0(const Json& text) {
  return {"node0", {0, 1}, text.dump(), ""};
}
NodeReport node1(const Json& text) {
  return {"node1", {2, 3}, text.dump(), ""};
}
Json made(const char* name, std::vector<int> ranks) {
  return {{"name", name}, {"ranks", std::move(ranks)}};
}

TEST(GroupsMerge, HasTheGroupsOfAllNodesEachOnce) {
  std::vector<NodeReport> reports{
      node0(said({made("both", {0, 1, 2}), made("low", {0, 1}), made("left", {1, 2})})),
      node1(said({made("high", {2, 3}), made("both", {0, 1, 2}), made("high", {2, 3})}))};
  const Json groups = merged_groups(reports);
  EXPECT_EQ(groups.at("hash"), "cbda545b");
  EXPECT_EQ(groups.at("total"), 2);
  EXPECT_EQ(groups.at("groups").at(0).at("on"),
            (Json::array({{{"node", "node0"}, {"ranks", 2}}, {{"node", "node1"}, {"ranks", 2}}})));
  EXPECT_EQ(groups.at("groups").at(1).at("on"), (Json::array({{{"node", "node0"}, {"ranks", 2}}})));
  const Json& all = groups.at("made");
  ASSERT_EQ(all.size(), 5u) << all;
  EXPECT_EQ(all[0].at("name"), "both");
  EXPECT_EQ(all[0].at("nodes"), Json::array({"node0", "node1"}));
  EXPECT_EQ(all[0].at("on"),
            (Json::array({{{"node", "node0"}, {"ranks", 2}}, {{"node", "node1"}, {"ranks", 1}}})));
  EXPECT_EQ(all[1].at("name"), "high");
  EXPECT_EQ(all[1], all[2]) << "two groups may have the same members";
  EXPECT_EQ(all[3].at("nodes"), Json::array({"node0"})) << "not freed there yet, or not made here";
  EXPECT_TRUE(groups.at("unanswered").empty());
  const std::string text = groups_text(groups, 100);
  EXPECT_THAT(text, HasSubstr("node0:2 node1:2"));
  EXPECT_THAT(text,
              HasSubstr("made while it runs: both of ranks 0-2 on node0:2 node1:1; node0, node1 have it"));
  EXPECT_THAT(text, HasSubstr("left of ranks 1,2 on node0:1 node1:1; node0 has it"));
}

TEST(GroupsMerge, SaysWhatIsKnownWhereANodeIsAway) {
  std::vector<NodeReport> reports{{"node0", {0, 1}, "", "node node0 is away: no route"},
                                  node1(said(Json::array({made("high", {2, 3})})))};
  const Json groups = merged_groups(reports);
  EXPECT_EQ(groups.at("groups").size(), 2u);
  EXPECT_EQ(groups.at("made").size(), 1u);
  EXPECT_EQ(groups.at("groups").at(0).at("on").size(), 2u) << "where ranks are is known of all nodes";
  EXPECT_EQ(groups.at("unanswered").at(0).at("why"), "node node0 is away: no route");
  for (NodeReport& report : reports) report.why = "away";
  EXPECT_TRUE(merged_groups(reports).is_null());
}

TEST(GroupsMerge, LooksOnOneNodeAsBefore) {
  std::vector<NodeReport> reports{{"", {0, 1, 2, 3}, said(Json::array({made("low", {0, 1})})).dump(), ""}};
  const Json groups = merged_groups(reports);
  EXPECT_FALSE(groups.at("groups").at(0).contains("on"));
  EXPECT_EQ(groups.at("made").at(0), made("low", {0, 1}));
  EXPECT_THAT(groups_text(groups, 100), HasSubstr("made while it runs: low of ranks 0,1\n"));
}

// Goal:   a node that says what cannot be is named, and the others are shown.
TEST(GroupsMerge, BelievesNoNodeThatLies) {
  const auto refused = [](const Json& text, const std::string& why) {
    std::vector<NodeReport> reports{node0(said()), {"node1", {2, 3}, text.dump(), ""}};
    const Json groups = merged_groups(reports);
    EXPECT_EQ(groups.at("made").size(), 0u) << text;
    EXPECT_THAT(reports[1].why, HasSubstr("node1")) << text;
    EXPECT_THAT(reports[1].why, HasSubstr(why));
    EXPECT_EQ(groups.at("unanswered").size(), 1u);
  };
  const auto other = [](const char* field, const Json& value) {
    Json json = said(Json::array({made("high", {2, 3})}));
    json[field] = value;
    return json;
  };
  refused(Json::array(), "the list of groups of node1 has no 'groups'");
  refused(said(Json::array({made("low", {0, 1})})), "'made'");
  refused(said(Json::array({made("none", {})})), "'made'");
  refused(said(Json::array({made("far", {2, 4})})), "'ranks'");
  refused(said(Json::array({Json{{"name", 5}, {"ranks", Json::array({2})}}})), "'name'");
  refused(other("per_rank", {2, 2}), "'per_rank'");
  refused(other("per_rank", {2, 2, 1, -1}), "'per_rank'");
  refused(other("total", "many"), "'total'");
  refused(other("groups", Json::array({Json{{"id", 0}}})), "'name'");
  std::vector<NodeReport> reports{node0(said()), node1(other("hash", "11111111"))};
  EXPECT_EQ(merged_groups(reports).at("hash"), "cbda545b");
  EXPECT_THAT(reports[1].why, HasSubstr("not those of node0: hashes 11111111 and cbda545b"));
}

}  // namespace
}  // namespace muster::cli
