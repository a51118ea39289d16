#include "daemon/engine/nodes/missing_members.hpp"

#include "scheduler/run/overdue.hpp"
#include "tests/daemon/engine/nodes/kept_links.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::engine {
namespace {

using namespace std::chrono_literals;
using scheduler::test::Stage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kLane = MUSTER_LANE_ALLREDUCE;

// Ranks 0 and 1 on node a, 2 and 3 on node b; all are in one group. This engine is that of one node.
struct OneNode {
  explicit OneNode(std::uint32_t here)
      : world(*World::build({"a", "b"}, std::vector<std::uint32_t>{0, 0, 1, 1}, NodeIndex(here))),
        stage({world, 64, 4}, {{"all", {Rank(0), Rank(1), Rank(2), Rank(3)}, 9}}),
        missing(world, stage.graph, links) {}
  void start(std::uint32_t rank, std::uint64_t count = 8) {
    stage.start(rank, kLane, stage.collective(0, rank, Stage::all_reduce(count)));
  }
  std::vector<scheduler::Step::Awaited> awaited() const {
    return missing.awaited(stage.steps.at(stage.launched.back()), std::vector<std::uint32_t>{2, 3});
  }

  World world;
  test::KeptLinks links;
  Stage stage;
  MissingMembers missing;
};

class MissingMembersTest : public ::testing::Test {
 protected:
  // Rank 2 has waited for rank 3; what its engine says of that.
  std::vector<std::byte> message() {
    there_.start(2);
    there_.stage.now += MissingMembers::kToldAfter;
    there_.missing.tell(there_.stage.now);
    return there_.links.told.empty() ? std::vector<std::byte>() : there_.links.told.back().second;
  }
  // Ranks 0 and 1 wait for node b.
  void wait() {
    here_.start(0);
    here_.start(1);
    ASSERT_FALSE(here_.stage.launched.empty());
  }
  void expect_known(bool known) const {
    const auto awaited = here_.awaited();
    ASSERT_EQ(awaited.size(), 1u);
    EXPECT_EQ(awaited[0].node, NodeIndex(1));
    EXPECT_EQ(awaited[0].all_missing, known);
    if (known) {
      EXPECT_THAT(awaited[0].ranks, ElementsAre(Rank(3)));
    } else {
      EXPECT_THAT(awaited[0].ranks, ElementsAre(Rank(2), Rank(3)));
    }
  }

  OneNode here_{0}, there_{1};
};

TEST_F(MissingMembersTest, AreToldOnceSomeHaveWaitedForAWhile) {
  there_.start(2);
  there_.missing.tell(there_.stage.now + MissingMembers::kToldAfter - 1ns);
  EXPECT_TRUE(there_.links.told.empty());
  for (int turn = 0; turn < 3; ++turn)
    there_.missing.tell(there_.stage.now + MissingMembers::kToldAfter + turn * 1s);
  ASSERT_EQ(there_.links.told.size(), 1u);
  EXPECT_EQ(there_.links.told[0].first, NodeIndex(0));
  there_.start(3);  // all members here have come
  there_.missing.tell(there_.stage.now + 10s);
  EXPECT_EQ(there_.links.told.size(), 1u);
}

TEST_F(MissingMembersTest, AreKnownOfTheOperationForWhichTheyWereTold) {
  wait();
  expect_known(false);
  here_.missing.hear(NodeIndex(1), message());
  expect_known(true);
  here_.stage.finish_next();
  wait();
  expect_known(false);
}

// Goal:   a node is believed about its own members alone, and bytes that are no such message change nothing.
TEST_F(MissingMembersTest, AreNotBelievedOfOtherNodesNorOfDamagedMessages) {
  wait();
  const std::vector<std::byte> whole = message();
  ASSERT_FALSE(whole.empty());
  here_.missing.hear(NodeIndex(0), whole);
  for (std::size_t size = 0; size < whole.size(); ++size)
    here_.missing.hear(NodeIndex(1), std::span(whole).first(size));
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  here_.missing.hear(NodeIndex(1), longer);
  std::vector<std::byte> more_members = whole;
  more_members[4] = std::byte{5};  // their number
  here_.missing.hear(NodeIndex(1), more_members);
  expect_known(false);
  here_.missing.hear(NodeIndex(1), whole);
  expect_known(true);
}

// Goal:   the verdict blames a rank only if it is known to be missing.
TEST_F(MissingMembersTest, AreNamedInTheVerdict) {
  wait();
  const auto verdict = [this](const std::vector<scheduler::Step::Awaited>& awaited) {
    return scheduler::overdue(here_.stage.steps.at(here_.stage.launched.back()), std::chrono::seconds(2),
                              here_.stage.graph.groups(), here_.stage.graph.lane_names(), here_.world,
                              awaited);
  };
  const scheduler::Cause unknown = verdict(here_.awaited());
  EXPECT_EQ(unknown.culprit, -1);
  EXPECT_THAT(unknown.text, HasSubstr("one at least of ranks 2 3 on node b has not come to it"));
  here_.missing.hear(NodeIndex(1), message());
  const scheduler::Cause known = verdict(here_.awaited());
  EXPECT_EQ(known.culprit, 3);
  EXPECT_THAT(known.text, HasSubstr("gives more); rank 3 on node b has not come to it"));
  const scheduler::Cause both = verdict({{NodeIndex(1), {Rank(2), Rank(3)}, true}});
  EXPECT_EQ(both.culprit, 2);
  EXPECT_THAT(both.text, HasSubstr("ranks 2 3 on node b have not come to it"));
  EXPECT_EQ(verdict({}).culprit, -1);
}

}  // namespace
}  // namespace muster::engine
