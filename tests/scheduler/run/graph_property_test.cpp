// Random programs on a 2×2×2 mesh: whatever order the ranks submit in, and whatever order steps finish in,
// all of it finishes.
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <algorithm>
#include <random>
#include <span>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;

constexpr std::uint32_t kWorld = 8;
constexpr int kProgramsMax = 400;
constexpr int kOperationsMax = 40;

// The pairs along each of three dims, and the world: 13 groups.
std::vector<Group> cube() {
  std::vector<Group> groups;
  for (std::uint32_t dim = 0; dim < 3; ++dim)
    for (std::uint32_t rank = 0; rank < kWorld; ++rank)
      if ((rank >> dim & 1) == 0) groups.push_back({"pair", {Rank(rank), Rank(rank | 1u << dim)}});
  Group world{"world", {}};
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) world.ranks.push_back(Rank(rank));
  groups.push_back(world);
  return groups;
}

struct Operation {
  std::uint32_t lane;
  Plan* plan;
};

// The members with which each has faces: itself too.
std::vector<std::vector<std::uint32_t>> random_neighbours(std::size_t members, std::mt19937_64& random) {
  std::vector<std::vector<std::uint32_t>> peers(members);
  for (std::uint32_t one = 0; one < members; ++one)
    for (std::uint32_t other = one; other < members; ++other) {
      if (random() % 3 != 0) continue;
      peers[one].push_back(other);
      if (other != one) peers[other].push_back(one);
    }
  return peers;
}

// One random global order of collectives and kernels; each rank's program is its own subsequence of it, so
// that an order without deadlock exists. Each lane of each rank keeps its order; ranks interleave at random.
std::vector<std::vector<Operation>> programs(Stage& stage, std::mt19937_64& random) {
  std::vector<std::vector<Operation>> programs(kWorld);
  const int operations = static_cast<int>(random() % kOperationsMax) + 1;
  for (int i = 0; i < operations; ++i) {
    const auto lane = static_cast<std::uint32_t>(random() % MUSTER_LANE_CLASSES);
    if (random() % 3 == 0) {
      const auto rank = random() % kWorld;
      programs[rank].push_back({lane, stage.kernel()});
      continue;
    }
    const auto group = static_cast<std::uint32_t>(random() % stage.graph.groups().size());
    if (random() % 2 == 0) {
      const auto peers = random_neighbours(stage.graph.groups()[group].ranks.size(), random);
      for (std::uint32_t member = 0; member < peers.size(); ++member) {
        const Rank rank = stage.graph.groups()[group].ranks[member];
        programs[rank.value].push_back({lane, stage.exchange(group, rank.value, peers[member])});
      }
      continue;
    }
    for (const Rank rank : stage.graph.groups()[group].ranks) {
      programs[rank.value].push_back(
          {lane, stage.collective(group, rank.value, Stage::all_reduce(static_cast<std::uint64_t>(i) + 1))});
    }
  }
  return programs;
}

void finish_random(Stage& stage, std::mt19937_64& random) {
  if (stage.launched.empty()) return;
  // Streams keep the order within a lane, so only the oldest step of each lane may finish, and after those
  // that it was launched behind.
  std::vector<std::size_t> eligible;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::size_t i = 0; i < stage.launched.size(); ++i) {
    const Step& step = stage.steps[stage.launched[i]];
    bool first = std::none_of(step.after.begin(), step.after.end(), [&](const Step::After& after) {
      const auto& launched = stage.launched;
      return std::find(launched.begin(), launched.end(), after.step) != launched.end() &&
             stage.steps[after.step].number == after.number;
    });
    // Steps of neighbours end in any order, but for those of one arriving member.
    for (const auto& part : std::span(step.parts).first(step.active > 0 ? 1 : step.parts.size())) {
      const std::pair lane{part.rank.value, part.lane};
      first = first && std::find(seen.begin(), seen.end(), lane) == seen.end();
      seen.push_back(lane);
    }
    if (first) eligible.push_back(i);
  }
  const std::size_t pick = eligible[random() % eligible.size()];
  const std::uint32_t index = stage.launched[pick];
  stage.launched.erase(stage.launched.begin() + static_cast<std::ptrdiff_t>(pick));
  stage.graph.finished(index, stage.now);
  stage.graph.meet(stage.now);
}

TEST(GraphProperty, FinishesEveryProgramInAnyInterleaving) {
  for (std::uint64_t seed = 1; seed <= kProgramsMax; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Stage stage({kWorld, 64, 3}, cube());
    const auto assigned = programs(stage, random);
    std::vector<std::size_t> next(kWorld, 0);
    std::vector<std::uint64_t> last_point(kWorld, 0);
    std::size_t left = 0;
    for (const auto& program : assigned) left += program.size();
    const std::size_t total = left;
    while (left > 0) {
      const auto rank = static_cast<std::uint32_t>(random() % kWorld);
      if (next[rank] < assigned[rank].size()) {
        const Operation& operation = assigned[rank][next[rank]++];
        const bool waits = last_point[rank] != 0 && random() % 2 == 0;
        last_point[rank] = stage.start(rank, operation.lane, operation.plan,
                                       waits ? std::vector{last_point[rank]} : std::vector<std::uint64_t>{});
        --left;
      }
      if (random() % 4 == 0) finish_random(stage, random);
    }
    while (!stage.launched.empty()) finish_random(stage, random);
    ASSERT_TRUE(stage.stops.empty()) << stage.stops.begin()->second.verdict.text;
    ASSERT_EQ(stage.retired_well, total);
    ASSERT_EQ(stage.graph.steps().in_flight(), 0u);
  }
}

// Deaths at random: each start is retired exactly once, no survivor waits beyond the deadline, and nothing
// stays in flight.
TEST(GraphProperty, RetiresEveryStartOnceWhenRanksDie) {
  for (std::uint64_t seed = 1; seed <= kProgramsMax; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed * 7919);
    Stage stage({kWorld, 64, 3}, cube());
    const auto assigned = programs(stage, random);
    std::vector<bool> dead(kWorld, false);
    std::vector<std::size_t> next(kWorld, 0);
    std::size_t started = 0;
    for (int turn = 0; turn < 600; ++turn) {
      const auto rank = static_cast<std::uint32_t>(random() % kWorld);
      if (!dead[rank] && next[rank] < assigned[rank].size()) {
        const Operation& operation = assigned[rank][next[rank]++];
        stage.start(rank, operation.lane, operation.plan);
        ++started;
      }
      if (random() % 3 == 0) finish_random(stage, random);
      if (random() % 150 == 0 && !dead[rank]) {
        dead[rank] = true;
        stage.graph.detached(Rank(rank), "killed", stage.now);
      }
    }
    while (!stage.launched.empty()) finish_random(stage, random);
    stage.pass(std::chrono::seconds(120));
    ASSERT_TRUE(stage.launched.empty());
    ASSERT_EQ(stage.retired_well + stage.retired_badly, started);
    ASSERT_EQ(stage.next_deadline(), std::nullopt);
    ASSERT_EQ(stage.graph.steps().in_flight(), 0u);
  }
}

// Goal:   a death ends every trainer without a deadline, however their groups overlap: nobody is left to
//         wait.
// Method: one rank dies; every rank that hears of a failure leaves in order, as a training program does. In
//         the end all have run their whole program or have gone, and whoever heard was told of the dead
//         rank.
TEST(GraphProperty, LeavesNobodyWaitingWhenThoseWhoHearOfADeathLeave) {
  for (std::uint64_t seed = 1; seed <= kProgramsMax; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed * 104729);
    Stage stage({kWorld, 64, 3}, cube());
    const auto assigned = programs(stage, random);
    std::vector<bool> gone(kWorld, false);
    std::vector<std::size_t> next(kWorld, 0);
    const auto victim = static_cast<std::uint32_t>(random() % kWorld);
    const std::uint64_t death = random() % 200;
    for (std::uint64_t turn = 0; turn < 4000; ++turn) {
      if (turn == death) {
        gone[victim] = true;
        stage.graph.detached(Rank(victim), "killed", stage.now);
      }
      const auto rank = static_cast<std::uint32_t>(random() % kWorld);
      const bool heard = std::any_of(stage.stops.begin(), stage.stops.end(),
                                     [&](const auto& stop) { return stop.first.first == rank; });
      if (!gone[rank] && heard) {
        gone[rank] = true;
        stage.graph.detached(Rank(rank), "left", stage.now);
      } else if (!gone[rank] && next[rank] < assigned[rank].size()) {
        const Operation& operation = assigned[rank][next[rank]++];
        stage.start(rank, operation.lane, operation.plan);
      }
      if (random() % 3 == 0) finish_random(stage, random);
    }
    while (!stage.launched.empty()) finish_random(stage, random);
    for (const auto& [lane, stop] : stage.stops)
      ASSERT_EQ(stop.verdict.culprit, static_cast<std::int32_t>(victim)) << stop.verdict.text;
    ASSERT_EQ(stage.next_deadline(), std::nullopt) << "somebody waits";
  }
}

}  // namespace
}  // namespace muster::scheduler
