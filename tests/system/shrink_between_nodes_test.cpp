// Groups of several nodes that go on without those who are lost. Supervisors that know each other, engines
// and ranks as programs of their own. Partitions: tests/fault/partition_shrinks.py.
#include "tests/daemon/supervisor/cluster_fixture.hpp"
#include "tests/support/job_between_nodes.hpp"
#include "tests/support/script.hpp"

#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using test::ended;
using test::Script;
using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;

// Ranks 2n and 2n + 1 run on node n.
class ShrinkBetweenNodes : public ClusterTest {
 protected:
  void start(std::size_t nodes) {
    std::signal(SIGPIPE, SIG_IGN);
    prepare(nodes);
    for (const auto& node : nodes_) test::connect_nodes(node->options.jobs.front(), "ofi", MUSTER_NETWORKS);
    start_all();
    ASSERT_TRUE(until_ready()) << waiting(0);
    for (std::size_t rank = 0; rank < 2 * nodes; ++rank) ranks_.push_back(attach(rank));
    for (const auto& rank : ranks_) ASSERT_EQ(rank->line(), "attached");
    all("run:@", "MUSTER_OK");
  }
  std::unique_ptr<Script> attach(std::size_t rank) {
    const auto world = static_cast<int>(2 * nodes_.size());
    return std::make_unique<Script>(nodes_[rank / 2]->endpoint(), static_cast<int>(rank), world,
                                    fmt::format("dp_replicate={},tp=2", nodes_.size()),
                                    std::vector<std::string>{"listen"}, kPatienceMs, "train");
  }
  // The same step for all who live; each must end it with that status.
  std::vector<test::Ended> all(const std::string& step, const std::string& status) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!gone_.contains(rank)) ranks_[rank]->tell(step);
    std::vector<test::Ended> lines;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (gone_.contains(rank)) continue;
      lines.push_back(ended(ranks_[rank]->line()));
      EXPECT_EQ(lines.back().status, status) << step << " of rank " << rank << ": " << lines.back().text;
    }
    return lines;
  }
  // All who live are told of a loss, and go on with each other.
  void expect_go_on() {
    all("run:@", "MUSTER_ERR_PEER_LOST");
    for (const test::Ended& line : all("shrink", "MUSTER_OK"))
      EXPECT_EQ(line.ms, static_cast<int>(ranks_.size() - gone_.size())) << "members";
    all("run:@", "MUSTER_OK");
    all("start:@", "MUSTER_OK");
  }
  void kill_rank(std::size_t rank) {
    ranks_[rank]->kill(SIGKILL);
    gone_.insert(rank);
  }
  Json made(std::size_t n) const {
    const auto groups = ask(n, {{"command", "groups"}, {"job", "train"}});
    EXPECT_TRUE(groups) << groups.error().text();
    return groups ? groups->at("made") : Json();
  }

  std::vector<std::unique_ptr<Script>> ranks_;
  std::set<std::size_t> gone_;
};

// Goal:   ranks die one after the other, the last of a node too; each time the others go on in a group of
//         their own. Then all are there again, and no made group is left.
TEST_F(ShrinkBetweenNodes, GoOnWithoutRanksThatDied) {
  start(2);
  for (const std::size_t victim : {3, 0, 2}) {
    SCOPED_TRACE(victim);
    if (victim == 2) {  // rank 1 is alone then
      kill_rank(victim);
      all("run:@", "MUSTER_ERR_PEER_LOST");
      EXPECT_EQ(all("shrink", "MUSTER_OK").at(0).ms, 1);
      break;
    }
    kill_rank(victim);
    expect_go_on();
    if (HasFailure()) return;
  }
  for (const std::size_t rank : {0, 2, 3}) {
    ranks_[rank] = attach(rank);
    EXPECT_EQ(ranks_[rank]->line(), "attached");
  }
  gone_.clear();
  all("whole", "MUSTER_OK");
  all("run:@", "MUSTER_OK");
  EXPECT_EQ(made(1), Json::array());
}

// Goal:   an engine that is killed is known to be dead, whether it has come back by then or not.
TEST_F(ShrinkBetweenNodes, GoOnWithoutANodeWhoseEngineDied) {
  start(2);
  const auto engine = job(1).at("engine_pid").get<std::int32_t>();
  ASSERT_EQ(kill(engine, SIGKILL), 0);
  for (const std::size_t rank : {2, 3}) kill_rank(rank);
  expect_go_on();
  ASSERT_EQ(made(0).size(), 1u);
  EXPECT_EQ(made(0).at(0).at("ranks"), Json({0, 1}));
}

// Goal:   a rank that still works is waited for, and named.
TEST_F(ShrinkBetweenNodes, NameTheRankThatTheyWaitFor) {
  start(2);
  kill_rank(0);
  all("run:@", "MUSTER_ERR_PEER_LOST");
  ranks_[2]->tell("shrink");
  ranks_[1]->tell("hurry");
  const test::Ended line = ended(ranks_[1]->line());
  EXPECT_EQ(line.status, "MUSTER_ERR_TIMEOUT");
  EXPECT_THAT(line.text, HasSubstr("3 "));
  EXPECT_THAT(line.text, HasSubstr("attached and did not call muster_group_shrink"));
  for (const std::size_t rank : {1, 3}) ranks_[rank]->tell("shrink");
  for (const std::size_t rank : {1, 2, 3}) {
    const test::Ended left = ended(ranks_[rank]->line());
    EXPECT_EQ(left.status, "MUSTER_OK") << left.text;
    EXPECT_EQ(left.ms, 3) << "members";
  }
  all("run:@", "MUSTER_OK");
}

// Goal:   a daemon that ends says so: that is evidence, and half of the members may go on.
TEST_F(ShrinkBetweenNodes, GoOnWithoutANodeThatEnds) {
  start(2);
  nodes_[1] = nullptr;
  for (const std::size_t rank : {2, 3}) kill_rank(rank);
  expect_go_on();
}

}  // namespace
}  // namespace muster::supervisor
