#include "daemon/config/settings.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::HasSubstr;

const Resolved::InForce& entry(const Resolved& resolved, std::string_view key) {
  for (const Resolved::InForce& line : resolved.in_force)
    if (line.key == key) return line;
  ADD_FAILURE() << "no key " << key;
  return resolved.in_force.front();
}

TEST(Settings, HaveTheirDefaultsWithoutAnySource) {
  const auto resolved = resolve({});
  ASSERT_TRUE(resolved) << resolved.error().text();
  const Settings& s = resolved->settings;
  EXPECT_EQ(s.node.runtime_directory, "/run/muster");
  EXPECT_EQ(s.node.socket_path, "");
  EXPECT_EQ(s.node.directory_mode, 0750u);
  EXPECT_EQ(s.node.engine_user, "nobody");
  EXPECT_EQ(s.node.program_folders, "");
  EXPECT_EQ(s.node.group, "");
  EXPECT_EQ(s.node.workers, 0u);
  EXPECT_EQ(s.node.cores, "ranks");
  EXPECT_EQ(s.log.level, "info");
  EXPECT_EQ(s.log.format, "auto");
  EXPECT_EQ(s.limits.jobs_max, 16u);
  EXPECT_EQ(s.limits.sessions_max, 256u);
  EXPECT_EQ(s.limits.jobs_per_user_max, 0u);
  EXPECT_EQ(s.limits.memory_max, 0u);
  EXPECT_EQ(s.limits.memory_per_user_max, 0u);
  EXPECT_EQ(s.limits.sessions_per_user_max, 0u);
  EXPECT_EQ(s.limits.ranks_per_job_max, 256u);
  EXPECT_EQ(s.limits.buffers_per_rank_max, 4096u);
  EXPECT_EQ(s.limits.plans_per_rank_max, 16384u);
  EXPECT_EQ(s.limits.starts_per_lane_max, 1024u);
  EXPECT_EQ(s.limits.groups_made_max, 64u);
  EXPECT_EQ(s.limits.arena_per_rank_max, std::uint64_t{8} << 30);
  EXPECT_EQ(s.limits.arena_segment, std::uint64_t{64} << 20);
  EXPECT_EQ(s.limits.made_job_linger, std::chrono::seconds(60));
  EXPECT_EQ(s.liveness.idle_spin, std::chrono::microseconds(50));
  EXPECT_EQ(s.liveness.drain_timeout, std::chrono::seconds(10));
  EXPECT_EQ(s.defaults.deadline, std::chrono::seconds(60));
  EXPECT_EQ(s.defaults.digests, 0u);
  EXPECT_EQ(s.jobs_from, "");
  EXPECT_TRUE(s.auto_create_jobs);
}

// Goal:   every key can be set, and reaches the member of its name and no other.
// Method: a file that sets each key to something other than its default.
TEST(Settings, TakeEveryKeyFromAFile) {
  Inputs inputs;
  inputs.file =
      Source("f.yaml",
             "node: {name: n1, runtime_directory: /b, socket_path: /a, directory_mode: \"0700\", group: g, "
             "engine_user: u,\n"
             "       program_folders: \"/p:/q\", workers: 2, cores: daemon}\n"
             "peers: {certificates: /d, secret_file: /e, plaintext: true}\n"
             "log: {level: error, format: json, reports_directory: /var/log/muster}\n"
             "limits: {jobs_max: 1, sessions_max: 2, buffers_per_rank_max: 3, plans_per_rank_max: 4,\n"
             "         arena_per_rank_max: 5MiB, arena_segment: 1MiB, ranks_per_job_max: 9,\n"
             "         starts_per_lane_max: 10, groups_made_max: 11, made_job_linger: 12s,\n"
             "         jobs_per_user_max: 13, sessions_per_user_max: 14, memory_max: 15GiB,\n"
             "         memory_per_user_max: 16KiB}\n"
             "liveness: {idle_spin: 6us, drain_timeout: 7ms}\n"
             "costs: {meeting: 17ns, turn: 18us, cached_rate: 19GiB, memory_rate: 20MiB}\n"
             "defaults: {deadline: 8s, digests: 12}\n"
             "jobs_from: /c\n"
             "auto_create_jobs: false\n");
  const auto resolved = resolve(inputs);
  ASSERT_TRUE(resolved) << resolved.error().text();
  const Settings& s = resolved->settings;
  EXPECT_EQ(s.node.name, "n1");
  EXPECT_EQ(s.peers.certificates, "/d");
  EXPECT_EQ(s.peers.secret_file, "/e");
  EXPECT_TRUE(s.peers.plaintext);
  EXPECT_EQ(s.node.engine_user, "u");
  EXPECT_EQ(s.node.program_folders, "/p:/q");
  EXPECT_EQ(s.node.runtime_directory, "/b");
  EXPECT_EQ(s.node.socket_path, "/a");
  EXPECT_EQ(s.node.directory_mode, 0700u);
  EXPECT_EQ(s.node.group, "g");
  EXPECT_EQ(s.node.workers, 2u);
  EXPECT_EQ(s.node.cores, "daemon");
  EXPECT_EQ(s.log.level, "error");
  EXPECT_EQ(s.log.format, "json");
  EXPECT_EQ(s.limits.jobs_max, 1u);
  EXPECT_EQ(s.limits.sessions_max, 2u);
  EXPECT_EQ(s.limits.buffers_per_rank_max, 3u);
  EXPECT_EQ(s.limits.plans_per_rank_max, 4u);
  EXPECT_EQ(s.limits.jobs_per_user_max, 13u);
  EXPECT_EQ(s.limits.memory_max, std::uint64_t{15} << 30);
  EXPECT_EQ(s.limits.memory_per_user_max, 16u << 10);
  EXPECT_EQ(s.limits.sessions_per_user_max, 14u);
  EXPECT_EQ(s.limits.ranks_per_job_max, 9u);
  EXPECT_EQ(s.limits.starts_per_lane_max, 10u);
  EXPECT_EQ(s.limits.groups_made_max, 11u);
  EXPECT_EQ(s.limits.arena_per_rank_max, 5u << 20);
  EXPECT_EQ(s.limits.arena_segment, 1u << 20);
  EXPECT_EQ(s.limits.made_job_linger, std::chrono::seconds(12));
  EXPECT_EQ(s.liveness.idle_spin, std::chrono::microseconds(6));
  EXPECT_EQ(s.liveness.drain_timeout, std::chrono::milliseconds(7));
  EXPECT_EQ(s.costs.meeting, Nanos(17));
  EXPECT_EQ(s.costs.turn, std::chrono::microseconds(18));
  EXPECT_EQ(s.costs.cached_rate, std::uint64_t{19} << 30);
  EXPECT_EQ(s.costs.memory_rate, 20u << 20);
  EXPECT_EQ(s.defaults.deadline, std::chrono::seconds(8));
  EXPECT_EQ(s.defaults.digests, 12u);
  EXPECT_EQ(s.jobs_from, "/c");
  EXPECT_FALSE(s.auto_create_jobs);
  for (const Resolved::InForce& line : resolved->in_force)
    EXPECT_EQ(line.origin.kind, Resolved::Origin::Kind::kFile) << line.key;
}

TEST(Settings, KnowHowRareASampleMayBe) {
  Inputs inputs;
  inputs.flags = {{"defaults.digests", "1000000", "--set defaults.digests"}};
  EXPECT_TRUE(resolve(inputs));
  for (const char* value : {"1000001", "-1", "often"}) {
    inputs.flags.back().value = value;
    const auto resolved = resolve(inputs);
    ASSERT_FALSE(resolved) << value;
    EXPECT_THAT(resolved.error().text(), HasSubstr("defaults.digests"));
  }
}

TEST(Settings, PreferFlagToEnvironmentToFileToDefault) {
  Inputs inputs;
  inputs.file = Source("f.yaml", "node:\n  workers: 1\nlog:\n  level: error\n  format: json\n");
  inputs.environment = {"PATH=/bin", "MUSTER_LOG=debug", "MUSTER_SET_node__workers=2",
                        "MUSTER_SET_log__level=warning"};
  inputs.flags = {{"node.workers", "4", "--set node.workers"}};
  const auto resolved = resolve(inputs);
  ASSERT_TRUE(resolved) << resolved.error().text();
  EXPECT_EQ(resolved->settings.node.workers, 4u);
  EXPECT_EQ(entry(*resolved, "node.workers").origin.text, "--set node.workers");
  EXPECT_EQ(resolved->settings.log.level, "warning");
  EXPECT_EQ(entry(*resolved, "log.level").origin.text, "MUSTER_SET_log__level");
  EXPECT_EQ(resolved->settings.log.format, "json");
  EXPECT_EQ(entry(*resolved, "log.format").origin.text, "f.yaml:5");
  EXPECT_EQ(entry(*resolved, "jobs_from").origin.text, "default");
}

// Goal:   no flag is without effect, whichever of two for one key its user meant.
TEST(Settings, RefuseTwoFlagsForOneKeyAndNameBoth) {
  Inputs inputs;
  inputs.flags = {{"node.runtime_directory", "/run/a", "--directory"},
                  {"node.workers", "3", "--set node.workers"},
                  {"node.runtime_directory", "/run/b", "--set node.runtime_directory"}};
  const auto resolved = resolve(inputs);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().entries().size(), 1u);
  EXPECT_THAT(resolved.error().text(),
              HasSubstr("--set node.runtime_directory: error: node.runtime_directory: it is set to '/run/b' "
                        "here, and to '/run/a' by --directory before; set it once"));
}

TEST(Settings, BlameTheFlagAndTheVariable) {
  Inputs inputs;
  inputs.environment = {"MUSTER_SET_node__wrkers=2", "MUSTER_SET_defaults__deadline=60", "MUSTER_SET_node=1"};
  inputs.flags = {{"workers", "3", "--set workers"}, {"node.directory_mode", "0999", "--mode"}};
  const auto resolved = resolve(inputs);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().entries().size(), 5u);
  const std::string text = resolved.error().text();
  EXPECT_THAT(text, HasSubstr("MUSTER_SET_node__wrkers: error: node.wrkers: unknown key; did you mean "
                              "'MUSTER_SET_node__workers'?"));
  EXPECT_THAT(text,
              HasSubstr("MUSTER_SET_defaults__deadline: error: defaults.deadline: a duration needs a unit"));
  EXPECT_THAT(text, HasSubstr("write 60s"));
  EXPECT_THAT(text, HasSubstr("MUSTER_SET_node: error: node: unknown key"));
  EXPECT_THAT(text, HasSubstr("--set workers: error: workers: unknown key; did you mean 'node.workers'?"));
  EXPECT_THAT(text, HasSubstr("--mode: error: node.directory_mode: expected four octal digits"));
}

// Goal: a fault does not hide behind a stronger source; removing the flag must not reveal it.
TEST(Settings, ReportAWrongFileEvenWhereAFlagOverridesIt) {
  Inputs inputs;
  inputs.file = Source("f.yaml", "node:\n  workers: many\n");
  inputs.flags = {{"node.workers", "4", "--workers"}};
  const auto resolved = resolve(inputs);
  ASSERT_FALSE(resolved);
  EXPECT_THAT(resolved.error().text(), HasSubstr("f.yaml:2:12"));
}

TEST(Settings, BlameTheStrongerOfTwoThatDoNotFitTogether) {
  Inputs inputs;
  inputs.file = Source("f.yaml", "limits:\n  arena_per_rank_max: 1GiB\n");
  inputs.flags = {{"limits.arena_segment", "2GiB", "--set limits.arena_segment"}};
  const auto resolved = resolve(inputs);
  ASSERT_FALSE(resolved);
  EXPECT_THAT(resolved.error().text(), HasSubstr("--set limits.arena_segment: error: limits.arena_segment: "
                                                 "limits.arena_segment (2GiB) is larger than"));
}

}  // namespace
}  // namespace muster::config
