// Deadlines of real jobs: the ranks that a verdict names, when, and why.
#include "daemon/cli/question.hpp"

#include "api/shm/job_counters.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/freezer.hpp"
#include "tests/support/node.hpp"
#include "tests/support/script.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

using test::Ended;
using test::ended;
using test::Script;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kDeadlineMs = test::kScriptDeadlineMs;
constexpr int kPromisedAfterMs = 1000;  // from a deadline to its verdict

// The rank of `e` got its timeout at its deadline, or soon after it.
void expect_at_deadline(const Ended& e) {
  EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.text;
  EXPECT_GE(e.ms, kDeadlineMs);
  std::printf("verdict after %d ms of a deadline of %d ms\n", e.ms, kDeadlineMs);
  test::expect_promised(e.ms, kDeadlineMs + kPromisedAfterMs, "ms to the verdict of a deadline");
}

// The dim in which each of four ranks of a 2 × 2 mesh waits for another one.
const char* const kFourInACircle[] = {"tp", "dp_shard", "dp_shard", "tp"};

class Hang : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    node_.options.job_defaults.reports_directory = folder_;
    node_.start();
  }
  std::string verb() const { return GetParam(); }
  std::unique_ptr<Script> rank(int rank, int world, const std::string& mesh, std::vector<std::string> steps,
                               int deadline_ms = kDeadlineMs) {
    auto script =
        std::make_unique<Script>(node_.endpoint(), rank, world, mesh, std::move(steps), deadline_ms);
    EXPECT_EQ(script->line(), "attached");
    return script;
  }
  cli::DaemonAnswer ask(const char* command) {
    auto answer = cli::ask({node_.endpoint()}, {{"command", command}, {"job", "job"}});
    EXPECT_TRUE(answer) << answer.error().text;
    return answer ? *std::move(answer) : cli::DaemonAnswer{};
  }
  Json hang() { return ask("hang").result; }
  static Json text_of(const cli::DaemonAnswer& answer) {
    EXPECT_EQ(answer.descriptors.size(), 1u);
    if (answer.descriptors.empty()) return {};
    const auto text = control::read_descriptor(answer.descriptors.front(), 1 << 28);
    EXPECT_TRUE(text);
    return text ? Json::parse(*text, nullptr, false) : Json();
  }
  // Each rank waits for that one, in a group in which nobody else waits.
  static void expect_circle(const Json& report, const std::vector<int>& waits_for) {
    const Json& circle = report.at("circle");
    ASSERT_EQ(circle.size(), waits_for.size()) << circle.dump(1);
    std::set<int> ranks;
    std::set<int> groups;
    for (const Json& link : circle) {
      const int rank = link.at("rank");
      ranks.insert(rank);
      groups.insert(link.at("group_id").get<int>());
      EXPECT_EQ(link.at("op"), "all_reduce");
      EXPECT_EQ(link.at("waits_for"), waits_for.at(static_cast<std::size_t>(rank))) << circle.dump(1);
      EXPECT_EQ(link.at("missing"), Json::array({link.at("waits_for")})) << circle.dump(1);
    }
    EXPECT_EQ(ranks.size(), waits_for.size()) << circle.dump(1);
    EXPECT_EQ(groups.size(), waits_for.size()) << circle.dump(1);
  }
  // The deadlines of ranks that end in a circle. The rank with the first deadline sees the whole circle; its
  // verdict breaks a group. The other deadlines come so much later that its report has been written by then.
  static int deadline_of(int rank) { return rank == 0 ? kDeadlineMs : 3 * kDeadlineMs; }
  // Lets the ranks go on into a circular wait.
  void expect_deadlock(const std::vector<std::unique_ptr<Script>>& ranks, const std::vector<int>& waits_for) {
    for (const auto& each : ranks) each->go_on();
    std::vector<std::string> texts;
    for (const auto& each : ranks) {
      const Ended e = ended(each->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.text;
      texts.push_back(e.text);
    }
    EXPECT_THAT(texts.front(), HasSubstr("circular wait: rank"));
    Json report;
    for (int tries = 0; tries < 500 && report.is_null(); ++tries) {
      usleep(20'000);
      for (const auto& file : std::filesystem::directory_iterator(folder_)) {
        if (!file.path().string().ends_with(".hang.json")) continue;
        const Json one = Json::parse(std::ifstream(file.path()), nullptr, false);
        if (one.is_object() && one.at("verdict") == "deadlock") report = one;
      }
    }
    ASSERT_FALSE(report.is_null()) << "no report in " << folder_ << " says deadlock";
    EXPECT_EQ(report.at("wait").at("site"), "script:1");
    expect_circle(report, waits_for);
  }
  Json deadline_report() { return hang().at("latest_deadline").at("report"); }

  const test::Folder own_;  // engines may write there until the node is gone
  const std::string folder_ = own_.path();
  test::Node node_;
};

INSTANTIATE_TEST_SUITE_P(Paths, Hang, ::testing::Values("run", "start"),
                         [](const auto& of) { return std::string(of.param); });

// Goal:   with 1, half, and all but one of the ranks missing, the verdict names exactly them.
TEST_P(Hang, NamesExactlyTheMissingRanks) {
  constexpr int kWorld = 4;
  for (const int missing : {1, kWorld / 2, kWorld - 1}) {
    SCOPED_TRACE(::testing::Message() << missing << " missing");
    std::vector<std::unique_ptr<Script>> ranks;
    for (int r = 0; r < kWorld; ++r)
      ranks.push_back(rank(r, kWorld, "dp_shard=4",
                           {verb() + ":world", r < missing ? "await" : verb() + ":world", "await"}));
    for (const auto& each : ranks) EXPECT_EQ(ended(each->line()).status, "MUSTER_OK");
    const std::string names = missing == 1   ? "missing rank 0;"
                              : missing == 2 ? "missing ranks 0 1;"
                                             : "missing ranks 0-2;";
    int latest_ms = 0;
    for (int r = missing; r < kWorld; ++r) {
      const Ended e = ended(ranks[static_cast<std::size_t>(r)]->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT");
      EXPECT_THAT(e.text, HasSubstr(names));
      latest_ms = std::max(latest_ms, e.ms);
      std::printf("verdict of rank %d after %d ms of a deadline of %d ms\n", r, e.ms, kDeadlineMs);
      test::expect_promised(e.ms, kDeadlineMs + kPromisedAfterMs, "ms to the verdict of a deadline");
    }
    EXPECT_GE(latest_ms, kDeadlineMs) << "who came first has waited for the whole of it";
    EXPECT_LT(latest_ms, kDeadlineMs * 20) << "the deadline of the session, not the 60 s that nobody set";
    const Json report = deadline_report();
    EXPECT_EQ(report.at("verdict"), "not_joined") << report.dump(1);
    std::vector<int> culprits;
    for (const Json& culprit : report.at("culprits")) {
      culprits.push_back(culprit.at("rank"));
      EXPECT_EQ(culprit.at("process"), "running");
      EXPECT_EQ(culprit.at("finished").at("op"), "all_reduce");
      EXPECT_EQ(culprit.at("finished").at("number"), report.at("wait").at("number").get<int>() - 1);
    }
    EXPECT_EQ(report.at("wait").at("missing").get<std::vector<int>>(), culprits);
    EXPECT_EQ(culprits.size(), static_cast<std::size_t>(missing));
    EXPECT_EQ(report.at("wait").at("site"), "script:1");
    for (const auto& each : ranks) each->kill(SIGKILL);
    ranks.clear();
  }
}

// Goal:   a rank that is stopped is called so at the deadline, not before, and never completes late.
TEST_P(Hang, CallsAStoppedRankStoppedAtTheDeadlineAndNotBefore) {
  const auto waiting = rank(0, 2, "dp_shard=2", {"await", verb() + ":world", "await"});
  const auto stopped = rank(1, 2, "dp_shard=2", {"await", verb() + ":world", "await"});
  stopped->kill(SIGSTOP);
  waiting->go_on();
  stopped->go_on();
  const Ended e = ended(waiting->line());
  expect_at_deadline(e);
  EXPECT_THAT(e.text, HasSubstr("missing rank 1; rank 1 is stopped by a signal"));
  const Json report = deadline_report();
  EXPECT_EQ(report.at("verdict"), "stopped");
  EXPECT_EQ(report.at("confidence"), "high");
  EXPECT_THAT(report.at("next").get<std::vector<std::string>>(),
              ElementsAre("kill -CONT " + std::to_string(stopped->pid())));
  stopped->kill(SIGCONT);
  EXPECT_EQ(ended(stopped->line()).status, "MUSTER_ERR_TIMEOUT");
}

TEST_P(Hang, CallsRanksStoppedThatWereStoppedBetweenTwoOperations) {
  const auto one = rank(0, 2, "dp_shard=2", {verb() + ":world", "await", verb() + ":world"});
  const auto other = rank(1, 2, "dp_shard=2", {verb() + ":world", "await", verb() + ":world"});
  for (const auto* each : {&one, &other}) EXPECT_EQ(ended((*each)->line()).status, "MUSTER_OK");
  EXPECT_EQ(hang().at("verdict"), "healthy");
  for (const auto* each : {&one, &other}) (*each)->kill(SIGSTOP);
  Json report = hang();
  for (int tries = 0; tries < 500 && report.at("culprits").size() < 2; ++tries) {  // a signal takes its time
    usleep(10'000);
    report = hang();
  }
  EXPECT_EQ(report.at("verdict"), "stopped");
  EXPECT_THAT(report.at("text").get<std::string>(), HasSubstr("ranks 0 1 are stopped by a signal"));
  for (const auto* each : {&one, &other}) {
    (*each)->kill(SIGCONT);
    (*each)->go_on();
  }
  for (const auto* each : {&one, &other}) EXPECT_EQ(ended((*each)->line()).status, "MUSTER_OK");
}

TEST_P(Hang, LetsARankThatWasStoppedForHalfItsDeadlineComplete) {
  const auto waiting = rank(0, 2, "dp_shard=2", {"await", verb() + ":world"}, 4 * kDeadlineMs);
  const auto stopped = rank(1, 2, "dp_shard=2", {"await", verb() + ":world"}, 4 * kDeadlineMs);
  stopped->kill(SIGSTOP);
  waiting->go_on();
  stopped->go_on();
  EXPECT_TRUE(waiting->silent_for(2 * kDeadlineMs));
  stopped->kill(SIGCONT);
  EXPECT_EQ(ended(waiting->line()).status, "MUSTER_OK");
  EXPECT_EQ(ended(stopped->line()).status, "MUSTER_OK");
}

TEST_P(Hang, CallsAFrozenRankFrozen) {
  const test::Freezer freezer("hang");
  if (!freezer.valid()) GTEST_SKIP() << "no cgroup with a freezer can be made here";
  const auto waiting = rank(0, 2, "dp_shard=2", {"await", verb() + ":world", "await"});
  const auto frozen = rank(1, 2, "dp_shard=2", {"await", verb() + ":world", "await"});
  freezer.take(frozen->pid());
  ASSERT_TRUE(freezer.freeze(true));
  waiting->go_on();
  frozen->go_on();
  const Ended e = ended(waiting->line());
  const Json report = deadline_report();
  freezer.freeze(false);
  expect_at_deadline(e);
  EXPECT_THAT(e.text, HasSubstr("rank 1 is frozen"));
  EXPECT_EQ(report.at("verdict"), "frozen");
  EXPECT_EQ(report.at("culprits").at(0).at("cgroup"), freezer.folder());
  EXPECT_EQ(ended(frozen->line()).status, "MUSTER_ERR_TIMEOUT");
}

// Goal:   ranks that go through several groups in orders that cannot meet are shown as a circle.
// Method: on a 2 × 2 mesh rank 0 is in tp, for rank 1; rank 1 in dp_shard, for rank 3; rank 3 in tp, for rank
//         2; rank 2 in dp_shard, for rank 0: four ranks, four groups.
TEST_P(Hang, ShowsACircleOfGroupsAtTheDeadline) {
  std::vector<std::unique_ptr<Script>> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(
        rank(r, 4, "dp_shard=2,tp=2", {"await", verb() + ":" + kFourInACircle[r], "await"}, deadline_of(r)));
  expect_deadlock(ranks, {1, 3, 0, 2});
}

// Goal:   all ranks get the circle, even ranks whose deadline passes after the first verdict has broken it.
TEST_P(Hang, TellsAllOfACircleAtTheSameDeadline) {
  std::vector<std::unique_ptr<Script>> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(rank(r, 4, "dp_shard=2,tp=2", {"await", verb() + ":" + kFourInACircle[r], "await"}));
  for (const auto& each : ranks) each->go_on();
  for (const auto& each : ranks) {
    const Ended e = ended(each->line());
    EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.text;
    EXPECT_THAT(e.text, HasSubstr("circular wait: rank"));
  }
}

// The same in groups that the ranks have made themselves: {0, 1}, {1, 2}, {2, 0}.
TEST_P(Hang, ShowsACircleOfMadeGroupsAtTheDeadline) {
  std::vector<std::unique_ptr<Script>> ranks;
  for (int r = 0; r < 3; ++r) {
    const std::string next = fmt::format("{},{}", r, (r + 1) % 3);
    const std::string last = fmt::format("{},{}", (r + 2) % 3, r);
    ranks.push_back(rank(r, 3, "dp_shard=3",
                         {"make:" + last, "make:" + next, "await", verb() + ":@", "await"}, deadline_of(r)));
  }
  expect_deadlock(ranks, {1, 2, 0});
}

TEST_P(Hang, SaysThatARunAndAStartDoNotMeet) {
  const std::string other = verb() == "run" ? "start" : "run";
  const auto one = rank(0, 2, "dp_shard=2", {"await", verb() + ":world"});
  const auto another = rank(1, 2, "dp_shard=2", {"await", other + ":world"}, 3 * kDeadlineMs);
  one->go_on();
  another->go_on();
  const Ended e = ended(one->line());
  expect_at_deadline(e);
  EXPECT_THAT(e.text, HasSubstr("what is run and what is started do not meet: rank "));
  EXPECT_EQ(deadline_report().at("verdict"), "mismatch_pending");
  EXPECT_NE(ended(another->line()).status, "MUSTER_OK");
}

TEST_P(Hang, ShowsACircleAlsoBeforeAnyDeadline) {
  std::vector<std::unique_ptr<Script>> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back(
        rank(r, 4, "dp_shard=2,tp=2", {"await", verb() + ":" + kFourInACircle[r], "await"}, 60'000));
  for (const auto& each : ranks) each->go_on();
  Json report = Json::object();
  for (int tries = 0; tries < 200 && report.value("verdict", "") != "deadlock"; ++tries) {
    usleep(50'000);
    report = hang();
  }
  ASSERT_EQ(report.at("verdict"), "deadlock") << report.dump(1);
  EXPECT_EQ(report.at("confidence"), verb() == "run" ? "high" : "medium");
  expect_circle(report, {1, 3, 0, 2});
  EXPECT_TRUE(report.at("latest_deadline").is_null());
}

// Goal:   after a deadline each rank's operations can be asked for, and are in files if configured so.
TEST_P(Hang, LeavesARecordOfWhatEachRankRan) {
  const auto waiting = rank(0, 2, "dp_shard=2", {verb() + ":world", verb() + ":world", "await"});
  const auto missing = rank(1, 2, "dp_shard=2", {verb() + ":world", "await"});
  EXPECT_EQ(ended(waiting->line()).status, "MUSTER_OK");
  EXPECT_EQ(ended(waiting->line()).status, "MUSTER_ERR_TIMEOUT");
  const Json flight = text_of(ask("flight"));
  ASSERT_EQ(flight.at("world"), 2);
  const auto entries = [&](const char* rank) { return flight.at("ranks").at(rank).at("entries"); };
  ASSERT_EQ(entries("0").size(), 2u) << flight.dump(1);
  ASSERT_EQ(entries("1").size(), 1u) << flight.dump(1);
  EXPECT_EQ(entries("0").at(0).at("collective_seq_id"), entries("1").at(0).at("collective_seq_id"));
  EXPECT_EQ(entries("0").at(0).at("state"), "completed");
  EXPECT_NE(entries("0").at(1).at("state"), "completed");
  EXPECT_EQ(entries("0").at(1).at("profiling_name"), "nccl:all_reduce");
  std::vector<std::string> files;
  for (int tries = 0; tries < 500 && files.size() < 2; ++tries) {
    usleep(20'000);
    files.clear();
    for (const auto& file : std::filesystem::directory_iterator(folder_))
      if (file.path().extension() == ".json") files.push_back(file.path());
  }
  ASSERT_EQ(files.size(), 2u);
  std::sort(files.begin(), files.end());
  EXPECT_TRUE(files[0].ends_with("-1.flight.json")) << files[0];
  EXPECT_EQ(Json::parse(std::ifstream(files[0])).at("ranks").size(), 2u);
  EXPECT_EQ(Json::parse(std::ifstream(files[1])).at("verdict"), "not_joined");
}

// Goal:   more deadlines at once than files that a job may write cost none of those.
TEST_P(Hang, LeavesARecordWhereManyDeadlinesPassAtOnce) {
  constexpr int kPairs = 20;
  std::vector<std::unique_ptr<Script>> ranks;
  for (int pair = 0; pair < kPairs; ++pair)
    ranks.push_back(rank(2 * pair, 2 * kPairs, "dp_shard=20,tp=2", {"await", verb() + ":tp", "await"}));
  for (const auto& each : ranks) each->go_on();
  for (const auto& each : ranks) {
    const Ended e = ended(each->line());
    EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.text;
    EXPECT_THAT(e.text, HasSubstr("missing rank"));
  }
  std::size_t files = 0;
  for (int tries = 0; tries < 500 && files < 2; ++tries) {
    usleep(20'000);
    files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_))
      files += file.path().extension() == ".json" ? 1 : 0;
  }
  EXPECT_GE(files, 2u);
}

// Goal:   counters are read past the engine, which may be stuck.
TEST_P(Hang, ShowsCountersWhileTheEngineIsStopped) {
  const auto one = rank(0, 2, "dp_shard=2", {verb() + ":world", "await"});
  const auto two = rank(1, 2, "dp_shard=2", {verb() + ":world", "await"});
  EXPECT_EQ(ended(one->line()).status, "MUSTER_OK");
  EXPECT_EQ(ended(two->line()).status, "MUSTER_OK");
  const auto done = [&](const shm::JobCountersReader& counters) {
    const auto count = verb() == "run" ? shm::RankCount::kRuns : shm::RankCount::kStepsCompleted;
    return counters.value(0, count) == 1 && counters.value(1, count) == 1;
  };
  const cli::DaemonAnswer first = ask("counters");
  ASSERT_EQ(first.descriptors.size(), 1u);
  const auto live = *shm::JobCountersReader::attach(first.descriptors.front());
  for (int tries = 0; tries < 500 && !done(live); ++tries) usleep(20'000);
  EXPECT_TRUE(done(live));
  EXPECT_EQ(live.row(0)->name, "world") << "as the ranks asked for it";
  const pid_t engine = first.result.at("engine_pid");
  ::kill(engine, SIGSTOP);
  const cli::DaemonAnswer second = ask("counters");
  ASSERT_EQ(second.descriptors.size(), 1u);
  const auto stuck = *shm::JobCountersReader::attach(second.descriptors.front());
  EXPECT_TRUE(done(stuck));
  EXPECT_EQ(stuck.value(0, shm::RankCount::kAttached), 1u);
  EXPECT_EQ(stuck.value(0, shm::RankCount::kPid), static_cast<std::uint64_t>(one->pid()));
  // Nobody but the engine may write there.
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, second.descriptors.front().get(), 0), MAP_FAILED);
  ::kill(engine, SIGCONT);
}

TEST_P(Hang, TracesWhatRanksRun) {
  const auto one = rank(0, 2, "dp_shard=2", {"await", verb() + ":world", verb() + ":world", "await"});
  const auto two = rank(1, 2, "dp_shard=2", {"await", verb() + ":world", verb() + ":world", "await"});
  ask("trace_begin");
  for (Script* script : {one.get(), two.get()}) script->go_on();
  for (Script* script : {one.get(), two.get()})
    for (int step = 0; step < 2; ++step) EXPECT_EQ(ended(script->line()).status, "MUSTER_OK");
  const Json trace = text_of(ask("trace_end"));
  int events = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++events;
    EXPECT_EQ(event.at("name"), "all_reduce");
    EXPECT_EQ(event.at("cat"), verb() == "run" ? "direct" : "small");
    EXPECT_EQ(event.at("args").at("group"), "world");
    EXPECT_GE(event.at("dur").get<double>(), 0.0);
  }
  EXPECT_EQ(events, 4);
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
}

TEST_P(Hang, SaysThatARankIsNotAttached) {
  const auto alone = rank(0, 2, "dp_shard=2", {"await", verb() + ":world"});
  alone->go_on();
  const Ended e = ended(alone->line());
  expect_at_deadline(e);
  EXPECT_THAT(e.text, HasSubstr("missing rank 1; rank 1 is not attached"));
  EXPECT_EQ(deadline_report().at("verdict"), "not_attached");
}

}  // namespace
}  // namespace muster
