// Jobs that lose processes and go on: the survivors in a smaller group, then all again.
#include "tests/support/node.hpp"
#include "tests/support/script.hpp"

#include <array>
#include <memory>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace muster {
namespace {

using test::ended;
using test::Script;
using ::testing::HasSubstr;

constexpr int kWorld = 4;
constexpr int kCycles = 25;

class Shrink : public ::testing::Test {
 protected:
  void SetUp() override {
    node_.start();
    for (int rank = 0; rank < kWorld; ++rank) start(rank);
    for (const auto& rank : ranks_) EXPECT_EQ(rank->line(), "attached");
  }
  void start(int rank) {
    ranks_[static_cast<std::size_t>(rank)] = std::make_unique<Script>(
        node_.endpoint(), rank, kWorld, "dp_shard=4", std::vector<std::string>{"listen"}, 10'000);
  }
  // The same step for all living ranks; each must end it with that status.
  std::vector<test::Ended> all(const std::string& step, const std::string& status) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (dead_.count(rank) == 0) ranks_[rank]->tell(step);
    std::vector<test::Ended> lines;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (dead_.count(rank) > 0) continue;
      lines.push_back(ended(ranks_[rank]->line()));
      EXPECT_EQ(lines.back().status, status) << step << " of rank " << rank << ": " << lines.back().text;
    }
    return lines;
  }
  void kill(std::size_t rank) {
    ranks_[rank]->kill(SIGKILL);
    dead_.insert(rank);
  }

  test::Node node_;
  std::array<std::unique_ptr<Script>, kWorld> ranks_;
  std::set<std::size_t> dead_;
};

// Goal:   after the death of any ranks, the others go on in a group of their own, with right sums on both
//         paths. A rank that is started again is a member as before.
// Method: in each cycle one to three of four are killed, in mid-operation or between two; the seed is fixed.
TEST_F(Shrink, SurvivorsGoOnAndTheRestartedJoinThem) {
  std::mt19937_64 random(7);
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    SCOPED_TRACE(::testing::Message() << "cycle " << cycle);
    all("run:@", "MUSTER_OK");
    const std::size_t losses = 1 + random() % (kWorld - 1);
    const bool waiting = random() % 2 == 0;
    std::set<std::size_t> victims;
    while (victims.size() < losses) victims.insert(random() % kWorld);
    for (std::size_t rank = 0; waiting && rank < kWorld; ++rank)
      if (victims.count(rank) == 0) ranks_[rank]->tell("run:@");
    for (const std::size_t victim : victims) kill(victim);
    for (std::size_t rank = 0; waiting && rank < kWorld; ++rank) {
      if (victims.count(rank) > 0) continue;
      const test::Ended heard = ended(ranks_[rank]->line());
      EXPECT_EQ(heard.status, "MUSTER_ERR_PEER_LOST") << heard.text;
    }
    if (!waiting) all("run:@", "MUSTER_ERR_PEER_LOST");
    for (const test::Ended& line : all("shrink", "MUSTER_OK"))
      EXPECT_EQ(line.ms, static_cast<int>(kWorld - losses)) << "members";
    all("run:@", "MUSTER_OK");
    all("start:@", "MUSTER_OK");
    for (const std::size_t victim : victims) {
      start(static_cast<int>(victim));
      EXPECT_EQ(ranks_[victim]->line(), "attached");
      dead_.erase(victim);
    }
    // The world's group reports a loss once to each rank that did not use the group in the meantime.
    for (std::size_t rank = 0; rank < kWorld; ++rank) ranks_[rank]->tell("whole");
    for (const auto& rank : ranks_) EXPECT_THAT(rank->line(), HasSubstr("whole MUSTER_OK"));
    all("run:@", "MUSTER_OK");
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster
