#include "daemon/config/render.hpp"

#include "daemon/config/cluster.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/schema.hpp"
#include "daemon/config/settings.hpp"

#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::config {
namespace {

using testing::HasSubstr;

constexpr const char* kRemedy = "run: cmake --build BUILD --target write-configs";

std::string committed(const std::string& name) {
  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/configs/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Generated, FilesAreTheCommittedOnes) {
  EXPECT_EQ(committed("musterd.yaml"), settings_yaml()) << kRemedy;
  EXPECT_EQ(committed("schema/musterd.schema.json"),
            json_schema(settings_keys(), "musterd.schema.json", "musterd settings"))
      << kRemedy;
  EXPECT_EQ(committed("schema/cluster.schema.json"),
            json_schema(cluster_keys(), "cluster.schema.json", "Muster cluster"))
      << kRemedy;
}

// Goal:   the file of defaults says what the daemon does without it, key by key.
// Method: resolve both; every value is equal, and every key of the file came from the file.
TEST(Generated, DefaultsInTheFileAreTheDefaultsInForce) {
  Inputs with_file;
  with_file.file = Source("musterd.yaml", settings_yaml());
  const auto from_file = resolve(with_file);
  ASSERT_TRUE(from_file) << from_file.error().text();
  const auto bare = resolve({});
  ASSERT_TRUE(bare);
  ASSERT_EQ(from_file->in_force.size(), bare->in_force.size());
  for (std::size_t i = 0; i < bare->in_force.size(); ++i) {
    EXPECT_EQ(from_file->in_force[i].value, bare->in_force[i].value) << bare->in_force[i].key;
    EXPECT_EQ(from_file->in_force[i].origin.kind, Resolved::Origin::Kind::kFile) << bare->in_force[i].key;
  }
}

TEST(Generated, SchemaStatesTypesRangesAndDefaults) {
  const auto schema = nlohmann::json::parse(json_schema(settings_keys(), "id", "title"));
  const auto& node = schema["properties"]["node"];
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(node["additionalProperties"], false);
  EXPECT_EQ(node["properties"]["workers"]["maximum"], 1024);
  EXPECT_EQ(node["properties"]["workers"]["default"], 0);
  EXPECT_EQ(schema["properties"]["auto_create_jobs"]["default"], true);
  EXPECT_EQ(schema["properties"]["log"]["properties"]["level"]["enum"].size(), 5u);
  const auto cluster = nlohmann::json::parse(json_schema(cluster_keys(), "id", "title"));
  EXPECT_EQ(cluster["required"], nlohmann::json::array({"nodes"}));
  const auto& mesh = cluster["properties"]["jobs"]["items"]["properties"]["mesh"]["properties"];
  EXPECT_EQ(mesh["dims"]["properties"]["dp_shard"]["minimum"], -1);
  EXPECT_EQ(mesh["flatten"]["additionalProperties"]["items"]["enum"].size(), 7u);
}

TEST(Explain, SaysWhatAKeyIsAndWhereItIsSet) {
  const auto workers = explain("node.workers");
  ASSERT_TRUE(workers);
  EXPECT_THAT(*workers, HasSubstr("a whole number, 0..1024; default 0"));
  EXPECT_THAT(*workers, HasSubstr("MUSTER_SET_node__workers"));
  const auto section = explain("limits");
  ASSERT_TRUE(section);
  EXPECT_THAT(*section, HasSubstr("limits.arena_segment"));
  EXPECT_THAT(explain("nodes[0].devices.count").value(), HasSubstr("1..1024; required"));
  EXPECT_THAT(explain("jobs[3].mesh.flatten.dp_tp").value(), HasSubstr("outermost first"));
  EXPECT_THAT(explain("jobs").value(), HasSubstr("jobs[]"));
  EXPECT_EQ(explain("node.wrkers").error().suggestion, "did you mean 'node.workers'?");
  EXPECT_EQ(explain("deadlin").error().suggestion, "");
  EXPECT_FALSE(explain("nodes["));
  EXPECT_FALSE(explain(""));
}

TEST(Explain, KnowsEveryDeclaredKey) {
  for (const auto keys : {settings_keys(), cluster_keys()})
    for (const Key& key : keys) {
      const auto text = explain(key.path);
      ASSERT_TRUE(text) << key.path;
      EXPECT_TRUE(text->starts_with(std::string(key.path) + "\n")) << *text;
    }
}

TEST(Explain, ItsExamplesAreGoodValues) {
  for (const auto keys : {settings_keys(), cluster_keys()})
    for (const Key& key : keys) {
      EXPECT_EQ(example_of(key).empty(), !key.leaf()) << key.path;
      EXPECT_TRUE(!key.leaf() || read_scalar(key, example_of(key), Spelling::kGiven)) << key.path;
    }
}

TEST(Show, PrintsEachValueWithItsOrigin) {
  Inputs inputs;
  inputs.flags = {{"log.level", "debug", "--log-level"}};
  inputs.environment = {"MUSTER_SET_node__workers=3"};
  inputs.file = Source("musterd.yaml", "defaults:\n  deadline: 90s\n");
  const auto resolved = resolve(inputs);
  ASSERT_TRUE(resolved) << resolved.error().text();
  const std::string text = show(*resolved, 100);
  EXPECT_THAT(text, testing::ContainsRegex("log.level +debug +flag --log-level\n"));
  EXPECT_THAT(text, testing::ContainsRegex("node.workers +3 +environment MUSTER_SET_node__workers\n"));
  EXPECT_THAT(text, testing::ContainsRegex("defaults.deadline +90s +file musterd.yaml:2\n"));
  EXPECT_THAT(text, testing::ContainsRegex("node.group +\"\" +default\n"));
  EXPECT_THAT(text, testing::ContainsRegex("node.directory_mode +0750 +default\n")) << "as chmod takes it";

  const auto json = nlohmann::json::parse(show_json(*resolved));
  EXPECT_EQ(json["schema_version"], 1);
  ASSERT_EQ(json["settings"].size(), resolved->in_force.size());
  EXPECT_EQ(json["settings"][0]["key"], "node.name");
  EXPECT_EQ(json["settings"][0]["origin"], "default");
  std::map<std::string, std::string> origins;
  for (const auto& line : json["settings"])
    origins[line["key"]] = line["origin"].get<std::string>() + " " + line["source"].get<std::string>();
  EXPECT_EQ(origins["log.level"], "flag --log-level");
  EXPECT_EQ(origins["node.workers"], "environment MUSTER_SET_node__workers");
  EXPECT_EQ(origins["defaults.deadline"], "file musterd.yaml:2");
}

}  // namespace
}  // namespace muster::config
