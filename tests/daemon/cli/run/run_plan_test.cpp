#include "daemon/cli/run/run_plan.hpp"

#include "tests/support/folder.hpp"

#include <gmock/gmock.h>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

RunPlan::Options options_for(std::int64_t ranks, const std::string& job = "") {
  RunPlan::Options options;
  options.ranks = ranks;
  options.job = job;
  return options;
}

TEST(RunPlan, TheMeshIsCanonicalIfTheRanksAreKnown) {
  const auto known = plan_run(options_for(4));
  ASSERT_TRUE(known) << known.error().text;
  EXPECT_EQ(known->options.mesh, "pp=1,dp_replicate=1,dp_shard=4,cp=1,tp=1");
  EXPECT_FALSE(known->mesh_given);
  RunPlan::Options named = options_for(0, "train");
  named.mesh = "dp_shard=-1,tp=2";
  const auto unknown = plan_run(named);
  ASSERT_TRUE(unknown) << unknown.error().text;
  EXPECT_EQ(unknown->options.mesh, named.mesh) << "the job has the ranks";
  EXPECT_TRUE(unknown->mesh_given);
}

TEST(RunPlan, HostsMakeAHeadAndGiveTheRanks) {
  RunPlan::Options options;
  options.head.hosts = "a:2,b:3";
  const auto plan = plan_run(options);
  ASSERT_TRUE(plan) << plan.error().text;
  EXPECT_TRUE(plan->is_head());
  EXPECT_FALSE(plan->is_part());
  EXPECT_EQ(plan->options.ranks, 5);
}

TEST(RunPlan, APartEntersItsFolder) {
  RunPlan::Options options = options_for(0, "train");
  options.part = {"node01", "/nonexistent/folder"};
  const auto plan = plan_run(options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().exit_code, kFailed);
  EXPECT_THAT(plan.error().text, HasSubstr("host node01: the run's folder /nonexistent/folder"));
}

TEST(RunPlan, RefusesOptionsThatExcludeEachOther) {
  const auto with = [](RunPlan::Options options, RunPlan::Home home, RunPlan::Lifetime lifetime,
                       const std::string& hosts) {
    options.home = home;
    options.lifetime = lifetime;
    options.head.hosts = hosts;
    return options;
  };
  const std::vector<std::pair<RunPlan::Options, std::string>> cases{
      {options_for(0), "say how many ranks, with -n"},
      {options_for(100000), "a job on one node can have"},
      {with(options_for(1), RunPlan::Home::kAny, RunPlan::Lifetime::kKeep, ""), "--keep needs --job"},
      {with(options_for(1, "a"), RunPlan::Home::kPrivate, RunPlan::Lifetime::kKeep, ""),
       "--private and --keep exclude"},
      {with(options_for(0, "a"), RunPlan::Home::kPrivate, RunPlan::Lifetime::kRun, ""),
       "a private daemon has no job 'a'"},
      {with(options_for(0), RunPlan::Home::kPrivate, RunPlan::Lifetime::kRun, "a,b"),
       "--hosts and --private exclude"},
      {with(options_for(0, "a"), RunPlan::Home::kAny, RunPlan::Lifetime::kKeep, "a,b"),
       "--hosts and --keep exclude"},
      {with(options_for(3), RunPlan::Home::kAny, RunPlan::Lifetime::kRun, "a,b"), "--hosts gives 2 ranks"}};
  for (const auto& [options, why] : cases) {
    const auto plan = plan_run(options);
    ASSERT_FALSE(plan) << why;
    EXPECT_EQ(plan.error().exit_code, kUsage) << why;
    EXPECT_THAT(plan.error().text, HasSubstr(why));
  }
}

TEST(RunPlan, ATraceThatCannotBeWrittenIsRefusedBeforeTheRun) {
  const test::Folder files;
  RunPlan::Options options = options_for(1);
  options.trace = files.path() + "/none/t.json";
  const auto plan = plan_run(options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().exit_code, kFailed);
  EXPECT_THAT(plan.error().text, HasSubstr("--trace"));
}

}  // namespace
}  // namespace muster::cli
