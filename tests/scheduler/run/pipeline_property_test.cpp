// Clients that start several operations in a row, look, and begin again where one has failed, as trainers do
// with their buckets: after one failure each hears of it once a lane, and all go on.
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/property_cases.hpp"

#include <optional>
#include <random>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;
using test::world_of;

constexpr int kTurns = 4000;
constexpr int kFailsAt = 100;

enum class Trouble : std::uint8_t { kNone, kAbort, kDeadline, kLoss };

struct Shape {
  std::uint32_t ranks;
  std::uint32_t lanes;
  std::uint32_t in_a_row;
};

std::vector<Group> all_of(std::uint32_t ranks) {
  Group all{"all", {}};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) all.ranks.push_back(Rank(rank));
  return {all};
}

class Trainers {
 public:
  Trainers(const Shape& shape, std::uint64_t seed)
      : stage(world_of(shape.ranks), all_of(shape.ranks)), shape_(shape), random_(seed) {
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      plans_.push_back(stage.collective(0, rank, Stage::all_reduce(1)));
      for (std::uint32_t lane = 0; lane < shape.lanes; ++lane) rows_[{rank, lane}] = {};
    }
  }

  // How many operations took place.
  std::uint32_t run(Trouble trouble) {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn == kFailsAt) fail(trouble);
      step(static_cast<std::uint32_t>(random_() % shape_.ranks),
           static_cast<std::uint32_t>(random_() % shape_.lanes));
      if (random_() % 3 == 0) stage.finish_all();
    }
    stage.finish_all();
    return stage.retired_well / shape_.ranks;
  }

  Stage stage;
  // How often the lane of a rank that heard most often was stopped.
  int stops_most = 0;

 private:
  struct Row {
    std::uint32_t started = 0;
    std::uint64_t last = 0;
    int stops = 0;
  };

  void step(std::uint32_t rank, std::uint32_t lane) {
    Row& row = rows_.at({rank, lane});
    if (row.started == shape_.in_a_row) {
      const bool stopped = stage.stops.erase({rank, lane}) > 0;
      if (stopped) {
        stops_most = std::max(stops_most, ++row.stops);
        stage.graph.reset_lane(Rank(rank), lane, stage.now);
      } else if (shm::point_value(row.last) > stage.points[{rank, lane}]) {
        return;  // it waits
      }
      row.started = 0;
    }
    row.last = stage.start(rank, lane, plans_[rank]);
    ++row.started;
  }

  void fail(Trouble trouble) {
    const auto victim = static_cast<std::uint32_t>(random_() % shape_.ranks);
    switch (trouble) {
      case Trouble::kNone:
        return;
      case Trouble::kAbort:
        stage.graph.abort({GroupId(0)}, {Code::kAborted, 0, "aborted"}, stage.now);
        return;
      case Trouble::kDeadline:
        return stage.graph.give_up(Rank(victim), 0, {Code::kAborted, 0, "given up"}, stage.now);
      case Trouble::kLoss:
        stage.finish_all();
        stage.graph.detached(Rank(victim), "died", stage.now);
        stage.graph.attached(Rank(victim));
        for (std::uint32_t lane = 0; lane < shape_.lanes; ++lane) {
          stage.stops.erase({victim, lane});
          rows_.at({victim, lane}) = {};
          stage.points[{victim, lane}] = 0;
        }
    }
  }

  Shape shape_;
  std::mt19937_64 random_;
  std::vector<Plan*> plans_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Row> rows_;
};

// A rank that has got over it on one lane and starts on another before it looks there tells it again: those
// who have gone on there would wait for what has fallen.
TEST(PipelineProperty, GoesOnAfterOneFailureOfWhichEachHearsOnceALane) {
  const std::uint64_t last = muster::test::property_cases(20);
  for (const Shape& shape : {Shape{2, 1, 2}, Shape{4, 1, 4}, Shape{4, 1, 30}, Shape{2, 2, 8}, Shape{4, 3, 8}})
    for (const Trouble trouble : {Trouble::kAbort, Trouble::kDeadline, Trouble::kLoss})
      for (std::uint64_t seed = 1; seed <= last; ++seed) {
        SCOPED_TRACE(::testing::Message()
                     << shape.ranks << " ranks, " << shape.lanes << " lanes, " << shape.in_a_row
                     << " in a row, trouble " << static_cast<int>(trouble) << ", seed " << seed);
        const std::uint32_t undisturbed = Trainers(shape, seed).run(Trouble::kNone);
        Trainers trainers(shape, seed);
        EXPECT_GT(trainers.run(trouble), undisturbed / 2);
        EXPECT_LE(trainers.stops_most, shape.lanes == 1 ? 1 : 1 + static_cast<int>(shape.ranks));
        if (HasFailure()) return;
      }
}

}  // namespace
}  // namespace muster::scheduler
