#include "daemon/cli/render.hpp"

#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As `jobs` tells of a job whose engine kept its word back.
Json silent(const char* state) {
  const Json job{{"name", "train"},        {"state", state},   {"world", 2},        {"mesh", "tp=2"},
                 {"owner_uid", 0},         {"claim", "token"}, {"engine_pid", 411}, {"attached", 1},
                 {"ranks", Json::array()}, {"answered", false}};
  return {{"jobs", Json::array({job})}};
}

// Goal:   an engine that is being made, or ends, is not called stuck.
TEST(Render, CallsTheEngineOfAReadyJobAloneSilent) {
  EXPECT_THAT(jobs_text(silent("ready"), config::kColumnsMax),
              HasSubstr("its engine (process 411) does not answer; `muster hang --job train` says"));
  EXPECT_THAT(jobs_text(silent("ready"), config::kColumnsMax, " --endpoint /tmp/other"),
              HasSubstr("`muster hang --endpoint /tmp/other --job train` says"));
  for (const char* state : {"starting", "adopting", "ending"}) {
    EXPECT_THAT(jobs_text(silent(state), config::kColumnsMax), HasSubstr(state));
    EXPECT_THAT(jobs_text(silent(state), config::kColumnsMax), Not(HasSubstr("does not answer")));
  }
}

// Goal:   a status, which asks no engine, shows no empty column for what only engines know.
TEST(Render, ShowsMemoryOnlyWhereEnginesWereAsked) {
  Json result = silent("ready");
  EXPECT_THAT(jobs_text(result, config::kColumnsMax), HasSubstr("RANKS  MEMORY  OWNER"));
  result.at("jobs").at(0).erase("ranks");
  result.at("jobs").at(0).erase("answered");
  EXPECT_THAT(jobs_text(result, config::kColumnsMax), HasSubstr("RANKS  OWNER"));
  EXPECT_THAT(jobs_text({{"jobs", Json::array()}}, config::kColumnsMax), HasSubstr("MEMORY"));
}

// Goal:   the text on a job of several nodes shows which ranks came where, and why something is not known.
TEST(Render, ShowsTheRanksOfEachNode) {
  Json job = silent("ready").at("jobs").at(0);
  job.update({{"answered", true}, {"nodes", {"a", "b", "c"}}, {"node", "b"}});
  const std::pair<const char*, bool> ranks[] = {{"a", true}, {"b", false}, {"b", true}};
  for (const auto& [node, attached] : ranks)
    job["ranks"].push_back({{"node", node}, {"attached", attached}, {"arena_used_bytes", 1u << 20}});
  job["unanswered"] = Json::array({{{"node", "c"}, {"ranks", {4, 5}}, {"why", "node c is away: no route"}}});
  const std::string text = jobs_text({{"jobs", Json::array({job})}}, config::kColumnsMax);
  EXPECT_THAT(text, HasSubstr("attached 1/1 on a, 1/2 on b\n"));
  EXPECT_THAT(text, HasSubstr("nothing is known of ranks 4 5 on c: node c is away: no route\n"));
  EXPECT_THAT(text, HasSubstr("2.0 MiB")) << "of this node";
  job["state"] = "starting";
  EXPECT_THAT(jobs_text({{"jobs", Json::array({job})}}, config::kColumnsMax), Not(HasSubstr("known")));
}

Json user(std::uint32_t uid, std::uint64_t jobs_share, std::uint64_t memory_share) {
  return {{"uid", uid},
          {"jobs", 2},
          {"jobs_share", jobs_share},
          {"sessions", 5},
          {"sessions_share", 8},
          {"memory_bytes", 3u << 20},
          {"memory_share_bytes", memory_share}};
}

// Goal:   users who share the node see the shares; a daemon of one user does not mention them.
TEST(Render, ShowsSharesWhereThereAreSome) {
  Json status{{"version", "1"}, {"socket", "/s"},        {"pid", 1},
              {"uptime_ns", 1}, {"jobs", Json::array()}, {"sessions", 5}};
  status["limits"] = {{"jobs_max", 16}, {"sessions_max", 256}, {"memory_max", 1u << 30}};
  status["users"] = Json::array({user(0, 16, 1u << 30)});
  EXPECT_THAT(status_text(status, 200), Not(HasSubstr("USER")));
  status["users"].push_back(user(1001, 7, 1u << 28));
  EXPECT_THAT(status_text(status, 200), HasSubstr("2 of 7"));
  EXPECT_THAT(status_text(status, 200), HasSubstr("3.0 MiB of 256 MiB"));
  EXPECT_THAT(status_text(status, 200), HasSubstr("2 of 16"));
  status["users"].push_back(user(0, 7, 1u << 28));
  status["users"].back()["container"] = 4026532190u;
  EXPECT_THAT(status_text(status, 200), HasSubstr("container 4026532190  2 of 7"));
  status.erase("users");
  EXPECT_THAT(status_text(status, 200), Not(HasSubstr("USER"))) << "a daemon of an earlier version";
}

// Goal:   a silence is shown once it is longer than between two nodes that are well.
TEST(Render, ShowsHowLongANodeWasSilent) {
  Json status{{"version", "1"}, {"socket", "/s"},        {"pid", 1},
              {"uptime_ns", 1}, {"jobs", Json::array()}, {"sessions", 5}};
  status["limits"] = {{"jobs_max", 16}, {"sessions_max", 256}};
  Json peer{{"node", "node02"},           {"state", "up"},  {"for_ns", 5'000'000'000},
            {"address", "10.0.0.2:7733"}, {"version", "1"}, {"why", ""}};
  const auto shown = [&] {
    status["cluster"] = {{"cluster", "lab-a"},
                         {"node", "node01"},
                         {"port", 7733},
                         {"trust", "secret"},
                         {"peers", Json::array({peer})},
                         {"refusals", Json::array()},
                         {"waiting", Json::array()}};
    return status_text(status, 200);
  };
  EXPECT_THAT(shown(), Not(HasSubstr("last heard"))) << "it was never heard";
  peer["heard_ns"] = 1'000'000'000;
  EXPECT_THAT(shown(), Not(HasSubstr("last heard")));
  peer["heard_ns"] = 1'200'000'000;
  EXPECT_THAT(shown(), HasSubstr("last heard 1.2 s ago"));
  peer["why"] = "no route to host";
  EXPECT_THAT(shown(), HasSubstr("no route to host; last heard 1.2 s ago"));
}

TEST(Render, ShowsJobsAndGroupsInSixtyColumns) {
  Json job = silent("starting").at("jobs").at(0);
  job["name"] = "run-4194304-0badcafe";
  job["mesh"] = "pp=1,dp_replicate=2,dp_shard=4,cp=1,tp=2";
  job["engine_pid"] = 4194303;
  const std::string jobs = jobs_text({{"jobs", Json::array({job})}}, 60);
  const Json group{{"id", 170},
                   {"names", {"dp_shard", "dp_shard_cp", "fsdp", "weight"}},
                   {"ranks", {0, 3, 4, 9, 11, 17, 20, 22, 23, 31, 40, 41, 43, 50, 52}}};
  const std::string groups = groups_text(
      {{"groups", Json::array({group})}, {"per_rank", {1}}, {"total", 1}, {"hash", "cbda545b"}}, 60);
  for (const std::string& text : {jobs, groups}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 60u + 2u) << text;  // of one "…"
  }
  EXPECT_THAT(jobs, HasSubstr("run-4194304-0badcafe"));
  EXPECT_THAT(groups, HasSubstr("170"));
}

}  // namespace
}  // namespace muster::cli
