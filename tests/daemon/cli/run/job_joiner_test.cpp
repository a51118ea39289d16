#include "daemon/cli/run/job_joiner.hpp"

#include "tests/daemon/cli/run/scripted_link.hpp"

#include <gmock/gmock.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A daemon with one job; what it is asked besides is done.
test::ScriptedDaemon::Script with_standing_job(const Json& more) {
  Json job{{"name", "train"}, {"state", "ready"}, {"world", 2}, {"mesh", "dp_shard=2"}, {"claim", "owner"}};
  job.update(more);
  return [job](const std::string& command) -> std::optional<Json> {
    if (command == "status") return Json{{"jobs", Json::array({job})}};
    return command == "token" ? Json{{"token", "t"}} : Json::object();
  };
}

// One way into a job, and where it has led.
struct Way {
  explicit Way(test::ScriptedDaemon::Script script) : scripted(std::move(script)) {
    plan.options.job = "train";
    plan.options.address.timeout = std::chrono::seconds(60);
  }
  JobJoiner& seek() {
    joiner.emplace(scripted.loop(), scripted.link(), plan,
                   JobJoiner::Events{[this](const JobJoiner::Job& its) { job = its; },
                                     [this](const Trouble& why) { trouble = why; }});
    joiner->seek();
    return *joiner;
  }
  bool ends() {
    seek();
    return scripted.turn_until([this] { return job || trouble; });
  }

  test::ScriptedLink scripted;
  RunPlan plan;
  std::optional<JobJoiner> joiner;
  std::optional<JobJoiner::Job> job;
  std::optional<Trouble> trouble;
};

TEST(JobJoiner, JoinsAJobWithATokenForEachRank) {
  Way way(with_standing_job({{"claim", "token"}}));
  ASSERT_TRUE(way.ends());
  ASSERT_TRUE(way.job) << way.trouble->text;
  EXPECT_EQ(way.job->world, 2);
  EXPECT_EQ(way.job->mesh, "pp=1,dp_replicate=1,dp_shard=2,cp=1,tp=1");
  EXPECT_THAT(way.job->here, ElementsAre(0, 1));
  EXPECT_THAT(way.job->tokens, ElementsAre("t", "t"));
  EXPECT_TRUE(way.job->stays);
  EXPECT_THAT(way.scripted.daemon().asked(), ElementsAre("status", "expect_all", "token", "token"));
}

TEST(JobJoiner, TakesTheRanksOfItsNodeAlone) {
  Way way(with_standing_job({{"local", {1}}}));
  ASSERT_TRUE(way.ends());
  ASSERT_TRUE(way.job) << way.trouble->text;
  EXPECT_EQ(way.job->world, 2);
  EXPECT_THAT(way.job->here, ElementsAre(1));
  EXPECT_THAT(way.job->tokens, ElementsAre(""));
}

TEST(JobJoiner, RefusesAJobThatIsNotAsTheRunWasTold) {
  Way ranks(with_standing_job(Json::object()));
  ranks.plan.options.ranks = 3;
  ASSERT_TRUE(ranks.ends());
  ASSERT_TRUE(ranks.trouble);
  EXPECT_EQ(ranks.trouble->exit_code, kUsage);
  EXPECT_THAT(ranks.trouble->text, HasSubstr("job train has 2 ranks, not 3"));
  Way mesh(with_standing_job(Json::object()));
  mesh.plan.options.mesh = "tp=2";
  mesh.plan.mesh_given = true;
  ASSERT_TRUE(mesh.ends());
  ASSERT_TRUE(mesh.trouble);
  EXPECT_THAT(mesh.trouble->text,
              HasSubstr("dp_shard=2,cp=1,tp=1, not pp=1,dp_replicate=1,dp_shard=1,cp=1,tp=2"));
  Way none([](const std::string&) { return Json{{"jobs", Json::array()}}; });
  ASSERT_TRUE(none.ends());
  ASSERT_TRUE(none.trouble);
  EXPECT_EQ(none.trouble->exit_code, kNoObject);
  Way strange([](const std::string&) { return Json(5); });
  ASSERT_TRUE(strange.ends());
  ASSERT_TRUE(strange.trouble);
  EXPECT_THAT(strange.trouble->text, HasSubstr("not as expected"));
}

// Goal:   a run whose user names no job looks for none.
TEST(JobJoiner, CreatesAJobOfAFreshName) {
  Way way([](const std::string&) { return Json::object(); });
  way.plan.options.job.clear();
  way.plan.options.ranks = 2;
  way.plan.options.mesh = "dp_shard=2";
  ASSERT_TRUE(way.ends());
  ASSERT_TRUE(way.job) << way.trouble->text;
  EXPECT_THAT(way.job->name, StartsWith("run-"));
  EXPECT_THAT(way.job->here, ElementsAre(0, 1));
  EXPECT_FALSE(way.job->stays);
  EXPECT_THAT(way.scripted.daemon().asked(), ElementsAre("job_create"));
}

TEST(JobJoiner, AsksAgainWhileTheNameIsTaken) {
  std::atomic<int> created = 0;
  Way way([&](const std::string& command) {
    if (command == "status") return Json{{"jobs", Json::array()}};
    return ++created < 3 ? control::failed(failure(Code::kDuplicate, "it exists already")) : Json::object();
  });
  way.plan.options.ranks = 1;
  way.plan.options.lifetime = RunPlan::Lifetime::kKeep;
  ASSERT_TRUE(way.ends());
  ASSERT_TRUE(way.job) << way.trouble->text;
  EXPECT_TRUE(way.job->stays);
  EXPECT_EQ(way.scripted.daemon().count("status"), 3);
}

TEST(JobJoiner, SaysNothingOnceItIsCancelled) {
  Way way(with_standing_job(Json::object()));
  way.seek().cancel();
  bool answered = false;
  way.scripted.link().ask({{"command", "version"}}, [&](const OrTrouble<DaemonAnswer>&) { answered = true; });
  ASSERT_TRUE(way.scripted.turn_until([&] { return answered; }));
  EXPECT_FALSE(way.job || way.trouble);
  EXPECT_THAT(way.scripted.daemon().asked(), ElementsAre("status", "version"));
}

}  // namespace
}  // namespace muster::cli
