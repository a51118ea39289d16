#include "daemon/cli/run/run_daemon.hpp"

#include "tests/daemon/cli/run/scripted_link.hpp"

#include <gmock/gmock.h>

namespace muster::cli {
namespace {

using test::ScriptedDaemon;
using test::turn_until;
using ::testing::HasSubstr;

std::optional<Json> say_nothing(const std::string&) {
  return std::nullopt;
}

// A search for a daemon, and what has come of it.
struct Search {
  explicit Search(const std::string& socket) {
    plan.options.home = RunPlan::Home::kOption;
    plan.options.ranks = 1;
    plan.options.address = {socket, std::chrono::seconds(60)};
  }
  void find() {
    daemon.emplace(loop, plan,
                   RunDaemon::Events{[this] { found = true; }, [this](const Trouble& why) { trouble = why; },
                                     [this] { ++lost; }, [this] { ++ended; }});
    daemon->find();
  }

  RunPlan plan;
  control::Loop loop;
  std::optional<RunDaemon> daemon;
  bool found = false;
  std::optional<Trouble> trouble;
  int lost = 0;
  int ended = 0;
};

TEST(RunDaemon, IsTheOneThatIsNamedAndStaysWhenTheRunLeaves) {
  const ScriptedDaemon there(say_nothing);
  Search search(there.socket());
  search.find();
  ASSERT_TRUE(search.found);
  EXPECT_FALSE(search.daemon->is_private());
  EXPECT_EQ(search.daemon->endpoint(), there.socket());
  EXPECT_EQ(search.daemon->link().endpoint(), there.socket());
  search.daemon->expect_end();
  search.daemon->leave();
  EXPECT_EQ(search.ended, 0) << "the connection may be on the stack";
  EXPECT_TRUE(turn_until(search.loop, [&] { return search.ended == 1; }));
  EXPECT_EQ(search.lost, 0);
}

TEST(RunDaemon, RefusesAConfigForOneThatRuns) {
  const ScriptedDaemon there(say_nothing);
  Search search(there.socket());
  search.plan.options.config = "musterd.yaml";
  search.find();
  ASSERT_TRUE(search.trouble);
  EXPECT_FALSE(search.found);
  EXPECT_EQ(search.trouble->exit_code, kUsage);
  EXPECT_THAT(search.trouble->text, HasSubstr("one runs at " + there.socket() + " already"));
}

TEST(RunDaemon, IsMissedWithWhatElseTheUserMayDo) {
  const test::Folder folder;
  for (const auto& [home, rest] : std::vector<std::pair<RunPlan::Home, std::string>>{
           {RunPlan::Home::kOption, "leave --endpoint out for a private one"},
           {RunPlan::Home::kVariable, "add --private for a private one"}}) {
    Search search(folder.path() + "/none.sock");
    search.plan.options.home = home;
    search.find();
    ASSERT_TRUE(search.trouble);
    EXPECT_EQ(search.trouble->exit_code, kUnreachable);
    EXPECT_THAT(search.trouble->text, HasSubstr(rest));
  }
}

TEST(RunDaemon, NoPrivateOneStartsForAJobThatMustBeThere) {
  const test::Folder folder;
  Search keep(folder.path() + "/none.sock");
  keep.plan.options.home = RunPlan::Home::kAny;
  keep.plan.options.lifetime = RunPlan::Lifetime::kKeep;
  keep.find();
  ASSERT_TRUE(keep.trouble);
  EXPECT_EQ(keep.trouble->exit_code, kUsage);
  Search join(folder.path() + "/none.sock");
  join.plan.options.home = RunPlan::Home::kAny;
  join.plan.options.ranks = 0;
  join.plan.options.job = "train";
  join.find();
  ASSERT_TRUE(join.trouble);
  EXPECT_THAT(join.trouble->text, HasSubstr("so there is no job 'train'"));
}

TEST(RunDaemon, TellsOnceThatItHasGone) {
  auto there = std::make_unique<ScriptedDaemon>(say_nothing);
  Search search(there->socket());
  search.find();
  ASSERT_TRUE(search.found);
  there.reset();
  EXPECT_TRUE(turn_until(search.loop, [&] { return search.lost == 1; }));
  EXPECT_EQ(search.ended, 0);
}

}  // namespace
}  // namespace muster::cli
