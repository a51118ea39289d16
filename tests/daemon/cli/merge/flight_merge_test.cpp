#include "daemon/cli/merge/flight_merge.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json entry(const std::string& group, std::uint64_t number, std::uint64_t time,
           const std::string& state = "completed") {
  Json json{{"record_id", 0},
            {"pg_id", 0},
            {"process_group", {group, "desc of " + group}},
            {"thread_name", "muster"},
            {"thread_id", "0"},
            {"collective_seq_id", number},
            {"p2p_seq_id", 0},
            {"op_id", number},
            {"profiling_name", "nccl:all_reduce"},
            {"time_created_ns", time},
            {"input_sizes", {{8}}},
            {"input_dtypes", {"Float"}},
            {"output_sizes", {{8}}},
            {"output_dtypes", {"Float"}},
            {"state", state},
            {"time_discovered_started_ns", time},
            {"time_discovered_completed_ns", time},
            {"retired", true},
            {"timeout_ms", 500},
            {"is_p2p", false},
            {"frames", {{{"name", "all_reduce"}, {"filename", "model.py"}, {"line", 3}}}}};
  if (state == "completed") json["duration_ms"] = 0.5;
  return json;
}

// Group "w" has all four ranks, "a" 0 and 1, "b" 2 and 3.
Json dump(std::vector<Json> entries, bool older_lost = false) {
  Json config;
  for (const auto& [name, ranks] : {std::pair{"w", "[0, 1, 2, 3]"}, {"a", "[0, 1]"}, {"b", "[2, 3]"}})
    config[name] = {{"name", name}, {"desc", std::string("desc of ") + name}, {"ranks", ranks}};
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i]["record_id"] = i;
  const Json progress{
      {"last_enqueued_collective", 1}, {"last_started_collective", 1}, {"last_completed_collective", 1}};
  return {{"version", "2.10"},   {"comm_lib_version", "muster"},   {"older_lost", older_lost},
          {"pg_config", config}, {"pg_status", {{"0", progress}}}, {"entries", std::move(entries)}};
}

NodeReport report(const std::string& node, std::uint32_t first, const Json& one, const Json& other) {
  const Json ranks{{std::to_string(first), one}, {std::to_string(first + 1), other}};
  return {node, {first, first + 1}, Json{{"job", "train"}, {"world", 4}, {"ranks", ranks}}.dump(), ""};
}

std::vector<std::string> order_of(const MergedFlight& flight) {
  std::vector<std::string> names;
  for (const Json& operation : flight.json.at("operations"))
    names.push_back(
        fmt::format("{}{}", operation.at("process_group").get<std::string>(), operation.at("number").dump()));
  return names;
}

// Goal:   operations of nodes whose clocks are hours apart are one list, in the order of each rank.
TEST(FlightMerge, OrdersByNumbersAndNotByClocks) {
  constexpr std::uint64_t kHours = 1'000'000'000'000'000;
  std::vector<NodeReport> reports{
      report("node0", 0, dump({entry("w", 1, kHours), entry("a", 1, kHours + 1), entry("w", 2, kHours + 2)}),
             dump({entry("w", 1, kHours), entry("a", 1, kHours), entry("w", 2, kHours, "started")})),
      report("node1", 2, dump({entry("b", 1, 1), entry("w", 1, 2), entry("b", 2, 3), entry("w", 2, 4)}),
             dump({entry("b", 1, 5), entry("w", 1, 6), entry("b", 2, 7)}))};
  const MergedFlight flight = merged_flight("train", reports);
  EXPECT_THAT(order_of(flight), ElementsAre("b1", "w1", "a1", "b2", "w2"));
  EXPECT_EQ(flight.ranks, 4u);
  EXPECT_EQ(flight.entries, 13u);
  const Json& last = flight.json.at("operations").at(4);
  EXPECT_EQ(last.at("members"), Json::array({0, 1, 2, 3}));
  EXPECT_EQ(last.at("unrecorded"), Json::array({3}));
  EXPECT_EQ(last.at("description"), "desc of w");
  EXPECT_EQ(last.at("name"), "nccl:all_reduce");
  EXPECT_EQ(last.at("records").size(), 3u);
  EXPECT_EQ(last.at("records").at(1),
            (Json{{"rank", 1}, {"record_id", 2}, {"state", "started"}, {"node", "node0"}}));
  EXPECT_EQ(last.at("records").at(2).at("node"), "node1");
  EXPECT_EQ(flight.json.at("world"), 4);
  EXPECT_TRUE(flight.json.at("unanswered").empty());
  EXPECT_THAT(flight.json.at("clocks").get<std::string>(), HasSubstr("not compared"));
  const Json& third = flight.json.at("ranks").at("2");
  EXPECT_EQ(third.at("node"), "node1");
  for (const Json& each : third.at("entries")) EXPECT_EQ(each.at("node"), "node1");
}

// Lanes need no common order, so two ranks may have two operations the other way round.
TEST(FlightMerge, HasEachOperationOnceWhereRanksContradictEachOther) {
  std::vector<NodeReport> reports{
      report("node0", 0, dump({entry("a", 1, 1), entry("w", 1, 2), entry("a", 2, 3)}),
             dump({entry("a", 2, 1), entry("w", 1, 2), entry("a", 1, 3)})),
      report("node1", 2, dump({entry("w", 1, 1)}), dump({entry("w", 1, 1), entry("w", 1, 1)}))};
  EXPECT_THAT(order_of(merged_flight("train", reports)), ElementsAre("a1", "w1", "a2", "w1"))
      << "the lowest rank decides, and a number that a rank has twice is two operations";
}

// Goal:   an entry that one node has overwritten makes no difference between ranks in a comparison.
TEST(FlightMerge, LeavesOutWhatAnotherNodeHasLost) {
  std::vector<NodeReport> reports{
      report("node0", 0, dump({entry("w", 1, 1), entry("a", 1, 2), entry("w", 2, 3)}),
             dump({entry("w", 1, 1, "started"), entry("a", 1, 2), entry("w", 2, 3)})),
      report("node1", 2, dump({entry("w", 2, 3)}, true), dump({entry("w", 1, 1), entry("w", 2, 3)}))};
  const MergedFlight flight = merged_flight("train", reports);
  EXPECT_EQ(flight.json.at("ranks").at("0").at("entries").size(), 2u) << "a1 and w2";
  EXPECT_EQ(flight.json.at("ranks").at("1").at("entries").size(), 3u) << "what is not complete stays";
  EXPECT_EQ(flight.json.at("ranks").at("3").at("entries").size(), 1u);
}

TEST(FlightMerge, NamesTheNodesThatHaveNotAnswered) {
  std::vector<NodeReport> reports{report("node0", 0, dump({entry("w", 1, 1)}), dump({entry("w", 1, 1)})),
                                  {"node1", {2, 3}, "", "node node1 is away: no route"}};
  const MergedFlight flight = merged_flight("train", reports);
  EXPECT_EQ(flight.ranks, 2u);
  EXPECT_EQ(flight.json.at("operations").at(0).at("unrecorded"), Json::array({2, 3}));
  EXPECT_EQ(flight.json.at("unanswered"),
            (Json::array({{{"node", "node1"}, {"ranks", {2, 3}}, {"why", "node node1 is away: no route"}}})));
  EXPECT_EQ(unanswered_text("train", reports),
            "job train: nothing is known of ranks 2 3 on node1: node node1 is away: no route\n");
}

TEST(FlightMerge, NamesNoNodesOfAJobOnOne) {
  std::vector<NodeReport> reports{report("", 0, dump({entry("a", 1, 1)}), dump({entry("a", 1, 1)}))};
  Json dumps = Json::parse(reports[0].text);
  for (const char* rank : {"0", "1"})
    dumps["ranks"][rank]["pg_config"] = {{"a", dumps["ranks"][rank]["pg_config"]["a"]}};
  reports[0].text = dumps.dump();
  const MergedFlight flight = merged_flight("train", reports);
  EXPECT_EQ(reports[0].why, "");
  EXPECT_FALSE(flight.json.at("ranks").at("0").contains("node"));
  EXPECT_FALSE(flight.json.at("operations").at(0).at("records").at(0).contains("node"));
}

// ---- what a node may not say -------------------------------------------------------------------

class HostileFlight : public ::testing::Test {
 protected:
  // Node1 says that; node0 is believed all the same, and node1 is named with the reason.
  void expect_refused(const Json& said, const std::string& why) const {
    expect_refused_text(said.dump(), why);
  }
  void expect_refused_text(const std::string& text, const std::string& why) const {
    std::vector<NodeReport> reports{node0_, {"node1", {2, 3}, text, ""}};
    const MergedFlight flight = merged_flight("train", reports);
    EXPECT_EQ(flight.ranks, 2u) << why;
    EXPECT_EQ(flight.json.at("operations").size(), 1u);
    EXPECT_THAT(reports[1].why, HasSubstr("the flight record of node1")) << text.substr(0, 300);
    EXPECT_THAT(reports[1].why, HasSubstr(why));
    EXPECT_EQ(flight.json.at("unanswered").at(0).at("node"), "node1");
  }
  Json good() const { return Json::parse(report("node1", 2, dump({entry("w", 1, 1)}), dump({})).text); }

  const NodeReport node0_ = report("node0", 0, dump({entry("w", 1, 1)}), dump({entry("w", 1, 1)}));
};

TEST_F(HostileFlight, IsTakenIfItIsGood) {
  std::vector<NodeReport> reports{node0_, {"node1", {2, 3}, good().dump(), ""}};
  EXPECT_EQ(merged_flight("train", reports).ranks, 4u) << reports[1].why;
}

TEST_F(HostileFlight, CannotSpeakForOthersOrForMoreThanItsRanks) {
  Json json = good();
  json["ranks"]["0"] = json["ranks"]["2"];
  expect_refused(json, "'ranks'");
  json = good();
  json["ranks"].erase("3");
  expect_refused(json, "'ranks'");
  json["ranks"]["../../etc/passwd"] = dump({});
  expect_refused(json, "'ranks'");
  json["ranks"].erase("../../etc/passwd");
  json["ranks"]["03"] = dump({});
  expect_refused(json, "'ranks'");
  json = good();
  json["ranks"]["2"]["entries"][0]["process_group"] = {"a", "desc of a"};
  expect_refused(json, "'process_group'");
  json["ranks"]["2"]["entries"][0]["process_group"] = {"none", "none"};
  expect_refused(json, "'process_group'");
  json = good();
  json["ranks"]["2"]["pg_config"]["w"]["ranks"] = "[2, 3]";
  expect_refused(json, "'pg_config'");
  for (const char* ranks : {"[2, 4]", "[]", "[2,", "[-1]", "[\"2\"]", "{}"}) {
    json["ranks"]["2"]["pg_config"]["w"]["ranks"] = ranks;
    expect_refused(json, "'ranks'");
  }
}

// Goal:   each field has its type and size, or the node is refused by that field's name.
TEST_F(HostileFlight, CannotHaveAFieldOfAnotherType) {
  const Json base = good();
  for (const auto& [field, value] : base.at("ranks").at("2").at("entries").at(0).items()) {
    if (field == "record_id") continue;
    for (const Json& bad : {Json(nullptr), Json({{"deep", {1, {2, {3}}}}}), Json::array({nullptr})}) {
      Json json = base;
      json["ranks"]["2"]["entries"][0][field] = bad;
      expect_refused(json, "'" + (field == "frames" && bad.is_array() ? "name" : field) + "'");
    }
    Json without = base;
    without["ranks"]["2"]["entries"][0].erase(field);
    if (field != "duration_ms") expect_refused(without, "'" + field + "'");
  }
  for (const char* field :
       {"version", "comm_lib_version", "older_lost", "pg_config", "pg_status", "entries"}) {
    Json json = base;
    json["ranks"]["2"][field] = 5;
    expect_refused(json, std::string("'") + field + "'");
  }
  Json json = base;
  json["ranks"]["2"]["entries"][0]["state"] = "flying";
  expect_refused(json, "'state'");
  json = base;
  json["ranks"]["2"]["entries"][0]["collective_seq_id"] = ~std::uint64_t{0};
  expect_refused(json, "'collective_seq_id'");
  json = base;
  json["ranks"]["2"]["entries"][0]["input_dtypes"] = Json::array({std::string(100'000, 'x')});
  expect_refused(json, "'input_dtypes'");
  json = base;
  json["ranks"]["2"]["pg_status"]["0; rm"] = base["ranks"]["2"]["pg_status"]["0"];
  expect_refused(json, "'pg_status'");
}

TEST_F(HostileFlight, CannotTakeStackOrMemory) {
  expect_refused_text("", "is not JSON");
  expect_refused_text("{\"ranks\":", "is not JSON");
  expect_refused_text(std::string(1'000'000, '['), "is deeper than");
  expect_refused_text("[]", "'ranks'");
  Json json = good();
  json["ranks"]["2"]["more"] = "what is not known is left out";
  std::vector<NodeReport> reports{node0_, {"node1", {2, 3}, json.dump(), ""}};
  EXPECT_FALSE(merged_flight("train", reports).json.at("ranks").at("2").contains("more"));
}

}  // namespace
}  // namespace muster::cli
