#include "daemon/cli/merge/top_nodes.hpp"

#include "daemon/cli/ask/top_view.hpp"
#include "daemon/cli/merge/top_rates.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using shm::GroupCount;
using shm::RankCount;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Nanos kSecond = std::chrono::seconds(1);

// The counters of a node `turns` seconds after its start: its ranks do `rate` operations a second.
class Figures {
 public:
  Figures(std::uint32_t first, std::uint64_t rate) : first_(first), rate_(rate) {
    look_.engine_pid = static_cast<std::int32_t>(100 + first);
    look_.ranks.resize(2);
    look_.groups.resize(3);
    look_.groups[0].name = "world";
    look_.groups[2].name = "made";
    set(look_.groups[0].values, GroupCount::kMembers, 4);
    set(look_.groups[0].values, GroupCount::kRow, 2);
    set(look_.groups[2].values, GroupCount::kMembers, 2);
    set(look_.groups[2].values, GroupCount::kRow, 4);
    set(look_.groups[2].values, GroupCount::kId, 2);
  }
  control::JobLook after(std::uint64_t turns) {
    look_.beat = kSecond * static_cast<std::int64_t>(turns + 10);
    look_.at = look_.beat;
    for (std::uint32_t i = 0; i < 2; ++i) {
      set(look_.ranks[i], RankCount::kRank, first_ + i);
      set(look_.ranks[i], RankCount::kAttached, 1);
      set(look_.ranks[i], RankCount::kPid, 1000 + first_ + i);
      set(look_.ranks[i], RankCount::kRuns, rate_ * turns);
    }
    set(look_.groups[0].values, GroupCount::kRuns, rate_ * turns);
    set(look_.groups[0].values, GroupCount::kBytes, 1000 * rate_ * turns);
    return look_;
  }
  NodeReport report(const std::string& node, std::uint64_t turns) {
    return {node, {first_, first_ + 1}, control::look_json(after(turns)).dump(), ""};
  }

 private:
  template<class Values, class Count>
  static void set(Values& values, Count count, std::uint64_t value) {
    values[static_cast<std::size_t>(count)] = value;
  }
  control::JobLook look_;
  std::uint32_t first_;
  std::uint64_t rate_;
};

class TopOfNodes : public ::testing::Test {
 protected:
  Json shown() {
    Json now = rates(here_.after(0), here_.after(1));
    now["job"] = "train";
    nodes_.add_to(now);
    return now;
  }
  Figures here_{2, 50};
  Figures there_{0, 20};
  TopNodes nodes_{"node1", kSecond};
};

TEST_F(TopOfNodes, HasTheRanksOfAllNodes) {
  nodes_.take({there_.report("node0", 1), here_.report("node1", 1)});
  nodes_.take({there_.report("node0", 3), here_.report("node1", 3)});
  const Json now = shown();
  ASSERT_EQ(now.at("ranks").size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const Json& row = now.at("ranks").at(static_cast<std::size_t>(rank));
    EXPECT_EQ(row.at("rank"), rank);
    EXPECT_EQ(row.at("node"), rank < 2 ? "node0" : "node1");
    EXPECT_EQ(row.at("ops_per_s"), rank < 2 ? 20.0 : 50.0);
  }
  ASSERT_EQ(now.at("nodes").size(), 2u);
  EXPECT_EQ(now.at("nodes").at(1).at("engine_pid"), 100);
  EXPECT_EQ(now.at("engine_pid"), 102) << "of this node, as before";
  ASSERT_EQ(now.at("groups").size(), 3u) << "one of the mesh, and a made one of each node";
  EXPECT_EQ(now.at("groups").at(0).at("ops_per_s"), 50.0)
      << "an operation is one, however many nodes count it";
  EXPECT_EQ(now.at("groups").at(0).at("bytes_per_s"), 70'000.0);
  EXPECT_EQ(now.at("groups").at(1).at("node"), "node1");
  EXPECT_EQ(now.at("groups").at(2).at("node"), "node0");
  const std::string text = TopView().text("train", now, {});
  EXPECT_THAT(text, AllOf(HasSubstr("NODE"), HasSubstr("node0   engine 100\n"), HasSubstr("2 made on node0"),
                          Not(HasSubstr("nothing is known"))));
}

// Goal:   a node that is silent, lies, or has a new engine shows no rates of the past.
TEST_F(TopOfNodes, SaysWhatIsNotKnown) {
  nodes_.take({there_.report("node0", 1)});
  nodes_.take({{"node0", {0, 1}, "", "node node0 is away: no route"}});
  Json now = shown();
  EXPECT_EQ(now.at("ranks").size(), 2u);
  EXPECT_EQ(now.at("unanswered").at(0).at("why"), "node node0 is away: no route");
  EXPECT_THAT(TopView().text("train", now, {}),
              HasSubstr("nothing is known of ranks 0 1 on node0: node node0 is away: no route\n"));
  NodeReport lie = there_.report("node0", 2);
  lie.ranks = {0, 3};
  nodes_.take({lie});
  EXPECT_THAT(shown().at("unanswered").at(0).at("why").get<std::string>(),
              HasSubstr("what node node0 says has no 'ranks'"));
  nodes_.take({there_.report("node0", 3)});
  EXPECT_EQ(shown().at("ranks").at(0).at("ops_per_s"), 0.0) << "one look is no rate";
  nodes_.take_silence("the daemon did not answer");
  EXPECT_EQ(shown().at("unanswered").at(0).at("why"), "the daemon did not answer");
  TopNodes none("node1", kSecond);
  none.take_silence("the daemon did not answer");
  now = rates(here_.after(0), here_.after(1));
  none.add_to(now);
  EXPECT_THAT(top_nodes_text(now), HasSubstr("nothing is known of other nodes: the daemon did not answer\n"));
}

TEST_F(TopOfNodes, NamesAnEngineThatIsStuck) {
  control::JobLook look = there_.after(1);
  look.at += 5 * kSecond;
  nodes_.take({{"node0", {0, 1}, control::look_json(look).dump(), ""}});
  EXPECT_THAT(top_nodes_text(shown()), HasSubstr("node0   engine 100, SILENT for 5.0 s"));
}

}  // namespace
}  // namespace muster::cli
