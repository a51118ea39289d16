// The reports of `muster hang` and `muster jobs` on a job of two nodes, asked on either. The supervisors know
// each other; engines and ranks are programs of their own.
#include "tests/daemon/supervisor/cluster_fixture.hpp"
#include "tests/support/job_between_nodes.hpp"
#include "tests/support/script.hpp"

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using test::ended;
using test::Script;
using ::testing::HasSubstr;

constexpr int kWorld = 4;
constexpr int kDeadlineMs = 120'000;  // nothing here ends by it
constexpr char kMesh[] = "dp_replicate=2,tp=2";

// Ranks 0 and 1 run on node0, 2 and 3 on node1.
class HangBetweenNodes : public ClusterTest {
 protected:
  void start_nodes() {
    prepare(2);
    for (const auto& node : nodes_) test::connect_nodes(node->options.jobs.front(), "ofi", MUSTER_NETWORKS);
    start_all();
    ASSERT_TRUE(until_ready()) << waiting(0);
  }
  // Each rank meets all others once, waits for a line, and comes again.
  void start_ranks() {
    for (int rank = 0; rank < kWorld; ++rank)
      ranks_.push_back(std::make_unique<Script>(nodes_[node_of(rank)]->endpoint(), rank, kWorld, kMesh,
                                                std::vector<std::string>{"run:world", "await", "run:world"},
                                                kDeadlineMs, "train"));
    for (const auto& rank : ranks_) ASSERT_EQ(rank->line(), "attached");
    for (const auto& rank : ranks_) {
      const test::Ended e = ended(rank->line());
      ASSERT_EQ(e.status, "MUSTER_OK") << e.text;
    }
  }
  static std::size_t node_of(int rank) { return static_cast<std::size_t>(rank) / 2; }
  Json hang(std::size_t n) const {
    auto report = ask(n, {{"command", "hang"}, {"job", "train"}});
    EXPECT_TRUE(report) << report.error().text();
    return report ? *std::move(report) : Json{{"verdict", "none"}, {"text", ""}};
  }
  // Both nodes say that, of exactly these ranks.
  void expect_both_blame(const std::vector<int>& missing, const char* verdict, const char* process) const {
    for (const std::size_t n : {0u, 1u}) {
      SCOPED_TRACE(name(n));
      Json report;
      ASSERT_TRUE(until([&] {
        report = hang(n);
        return report.at("verdict") == verdict && report.at("wait").is_object();
      })) << report.at("text").get<std::string>();
      EXPECT_EQ(report.at("wait").at("missing"), Json(missing));
      EXPECT_EQ(report.at("wait").at("arrived").size(), static_cast<std::size_t>(kWorld) - missing.size());
      EXPECT_TRUE(report.at("unanswered").empty());
      EXPECT_EQ(report.at("ranks").size(), static_cast<std::size_t>(kWorld));
      ASSERT_EQ(report.at("culprits").size(), missing.size()) << report.at("text").get<std::string>();
      for (std::size_t i = 0; i < missing.size(); ++i) {
        const Json& culprit = report.at("culprits").at(i);
        const int pid = ranks_[static_cast<std::size_t>(missing[i])]->pid();
        EXPECT_EQ(culprit.at("rank"), missing[i]);
        EXPECT_EQ(culprit.at("node"), name(node_of(missing[i])));
        EXPECT_EQ(culprit.at("process"), process);
        EXPECT_EQ(culprit.at("pid"), pid);
        EXPECT_EQ(culprit.at("finished").at("op"), "all_reduce") << "what it has done last";
        EXPECT_THAT(report.at("text").get<std::string>(),
                    HasSubstr(fmt::format("rank {}   on {}: pid {}, process {}", missing[i],
                                          name(node_of(missing[i])), pid, process)));
      }
    }
  }

  std::vector<std::unique_ptr<Script>> ranks_;
};

// Goal:   a rank that is stopped is named on both nodes, whichever of them it runs on.
TEST_F(HangBetweenNodes, NameARankThatIsStopped) {
  start_nodes();
  start_ranks();
  if (HasFatalFailure()) return;
  for (int rank = 0; rank < kWorld; ++rank)
    if (rank != 3) ranks_[static_cast<std::size_t>(rank)]->go_on();
  ASSERT_EQ(kill(ranks_[3]->pid(), SIGSTOP), 0);
  expect_both_blame({3}, "stopped", "stopped");
  ASSERT_EQ(kill(ranks_[3]->pid(), SIGCONT), 0);
  expect_both_blame({3}, "not_joined", "running");
  ranks_[3]->go_on();
  for (const auto& rank : ranks_) EXPECT_EQ(ended(rank->line()).status, "MUSTER_OK");
}

// Goal:   with all ranks of a node missing, and with one of each, exactly they are named.
TEST_F(HangBetweenNodes, NameExactlyTheRanksThatAreLate) {
  for (const std::vector<int>& missing : {std::vector<int>{2, 3}, {1, 2}, {0, 1, 3}}) {
    ranks_.clear();
    nodes_.clear();
    roster_ = {};
    start_nodes();
    start_ranks();
    if (HasFatalFailure()) return;
    const auto is_late = [&](int rank) { return std::count(missing.begin(), missing.end(), rank) > 0; };
    for (int rank = 0; rank < kWorld; ++rank)
      if (!is_late(rank)) ranks_[static_cast<std::size_t>(rank)]->go_on();
    expect_both_blame(missing, "not_joined", "running");
    for (const int rank : missing) ranks_[static_cast<std::size_t>(rank)]->go_on();
    for (const auto& rank : ranks_) EXPECT_EQ(ended(rank->line()).status, "MUSTER_OK");
    if (HasFailure()) return;
  }
}

// Goal:   each node lists the ranks of both; one that does not answer is named with the reason, and its ranks
//         are unknown to `hang` and `jobs`.
// Method: the engine of a node is stopped. two_daemons_test has a node that is away.
TEST_F(HangBetweenNodes, SayWhoseRanksAreUnknown) {
  start_nodes();
  start_ranks();
  if (HasFatalFailure()) return;
  const auto train_in = [this](std::size_t n) {
    const auto jobs = ask(n, {{"command", "jobs"}});
    return jobs && jobs->at("jobs").size() == 1 ? jobs->at("jobs").at(0) : Json::object();
  };
  for (const std::size_t n : {0u, 1u}) {
    const Json train = train_in(n);
    EXPECT_EQ(train.at("node"), name(n));
    EXPECT_TRUE(train.at("unanswered").empty()) << train;
    ASSERT_EQ(train.at("ranks").size(), static_cast<std::size_t>(kWorld));
    for (int rank = 0; rank < kWorld; ++rank) {
      const Json& entry = train.at("ranks").at(static_cast<std::size_t>(rank));
      EXPECT_EQ(entry.at("rank"), rank);
      EXPECT_EQ(entry.at("node"), name(node_of(rank)));
      EXPECT_EQ(entry.at("attached"), true);
      EXPECT_EQ(entry.at("pid"), ranks_[static_cast<std::size_t>(rank)]->pid());
    }
    EXPECT_EQ(hang(n).at("verdict"), "healthy");
  }
  const auto engine = job(1).at("engine_pid").get<std::int32_t>();
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  for (const std::size_t n : {0u, 1u}) {
    const Json report = hang(n);
    EXPECT_EQ(report.at("verdict"), "unknown") << report.at("text").get<std::string>();
    ASSERT_EQ(report.at("unanswered").size(), 1u);
    EXPECT_EQ(report.at("unanswered").at(0).at("node"), "node1");
    EXPECT_EQ(report.at("unanswered").at(0).at("ranks"), Json::array({2, 3}));
    EXPECT_THAT(report.at("unanswered").at(0).at("why").get<std::string>(),
                HasSubstr("node node1 did not answer within"));
    EXPECT_THAT(report.at("ranks").at(3).at("unknown").get<std::string>(), HasSubstr("did not answer"));
    const Json train = train_in(n);
    ASSERT_EQ(train.at("unanswered").size(), 1u);
    EXPECT_EQ(train.at("unanswered").at(0).at("ranks"), Json::array({2, 3}));
    EXPECT_EQ(train.at("ranks").size(), 2u);
    EXPECT_EQ(train.at("answered"), n == 0);
  }
  ASSERT_EQ(kill(engine, SIGCONT), 0);
  for (const std::size_t n : {0u, 1u}) EXPECT_TRUE(until([&] { return hang(n).at("verdict") == "healthy"; }));
}

}  // namespace
}  // namespace muster::supervisor
