// Starts that are launched behind launched ones of their rank, because streams wait for each other.
#include "kernels/check.hpp"
#include "kernels/device/registry.hpp"
#include "kernels/table.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/property_cases.hpp"
#include "transport/loopback/loopback.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::scheduler {
namespace {

using test::Stage;
using test::world_of;

const Status kBroken(Code::kDevice, "it broke");

class StreamWaits : public ::testing::Test {
 protected:
  std::uint64_t kernel(std::uint32_t rank, std::uint32_t lane, std::vector<std::uint64_t> waits = {}) {
    return stage_.start(rank, lane, stage_.kernel(), std::move(waits));
  }
  std::uint64_t reduce(std::uint32_t rank, std::vector<std::uint64_t> waits = {}) {
    return stage_.start(rank, MUSTER_LANE_REDUCE, stage_.collective(0, rank, Stage::all_reduce(4)),
                        std::move(waits));
  }
  bool reached(std::uint32_t rank, std::uint64_t point) {
    return stage_.points[{rank, shm::point_timeline(point)}] >= shm::point_value(point);
  }

  Stage stage_{world_of(2), {{"pair", {Rank(0), Rank(1)}}, {"far", {Rank(0)}, 7}}, {}, true};
};

TEST_F(StreamWaits, LaunchAStartBehindItsPoints) {
  const std::uint64_t first = kernel(0, MUSTER_LANE_COMPUTE);
  kernel(0, MUSTER_LANE_COPY, {first});
  ASSERT_EQ(stage_.launched.size(), 2u);
  const Step& behind = stage_.steps.at(stage_.launched[1]);
  ASSERT_EQ(behind.after.size(), 1u);
  EXPECT_EQ(behind.after[0].step, stage_.launched[0]);
  EXPECT_EQ(behind.after[0].number, stage_.steps.at(stage_.launched[0]).number);
  stage_.finish_all();
  kernel(0, MUSTER_LANE_COPY, {first});
  EXPECT_TRUE(stage_.steps.at(stage_.launched[0]).after.empty()) << "that point is reached";
}

TEST_F(StreamWaits, LaunchACollectiveBehindThePointsOfItsMembers) {
  const std::uint64_t a = kernel(0, MUSTER_LANE_COMPUTE);
  const std::uint64_t b = kernel(1, MUSTER_LANE_COMPUTE);
  reduce(0, {a});
  reduce(1, {b});
  ASSERT_EQ(stage_.launched.size(), 3u);
  const Step& behind = stage_.steps.at(stage_.launched[2]);
  ASSERT_EQ(behind.after.size(), 2u);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(behind.after[i].part, i);
    EXPECT_EQ(behind.after[i].step, stage_.launched[i]);
  }
}

TEST_F(StreamWaits, WaitForAClientsTimelineAndForWhatIsNotLaunched) {
  const std::uint64_t signal = shm::make_point(shm::kClientTimelineFirst, 1);
  const std::uint64_t first = kernel(0, MUSTER_LANE_COMPUTE, {signal});
  kernel(0, MUSTER_LANE_COPY, {first});
  EXPECT_TRUE(stage_.launched.empty());
  ASSERT_EQ(stage_.graph.signal(Rank(0), shm::kClientTimelineFirst, 1, stage_.now), Code::kOk);
  EXPECT_EQ(stage_.launched.size(), 2u);
}

// Goal:   what goes on outside the streams is waited for until it has ended.
TEST_F(StreamWaits, NeverCrossACollectiveBetweenNodes) {
  const std::uint64_t before = kernel(0, MUSTER_LANE_COMPUTE);
  const std::uint64_t far =
      stage_.start(0, MUSTER_LANE_GATHER, stage_.collective(1, 0, Stage::all_reduce(4)), {before});
  ASSERT_EQ(stage_.launched.size(), 1u) << "it runs on no stream";
  stage_.finish_next();
  ASSERT_EQ(stage_.launched.size(), 1u);
  kernel(0, MUSTER_LANE_COPY, {far});
  EXPECT_EQ(stage_.launched.size(), 1u);
  stage_.finish_next();
  EXPECT_EQ(stage_.launched.size(), 1u);
}

// Goal:   a step that fails late ends what was launched behind it: a collective at all its members, and what
//         lies behind that. Each waits for its own point alone, and no other rank hears DEPENDENCY.
TEST_F(StreamWaits, EndWhatWasLaunchedBehindALateFailure) {
  const std::uint64_t first = kernel(0, MUSTER_LANE_COMPUTE);
  const std::uint64_t fine = kernel(1, MUSTER_LANE_COMPUTE);
  const std::uint64_t one = reduce(0, {first});
  const std::uint64_t other = reduce(1, {fine});
  const std::uint64_t last = kernel(1, MUSTER_LANE_COPY, {other});
  const std::uint64_t apart = kernel(1, MUSTER_LANE_HALO);
  ASSERT_EQ(stage_.launched.size(), 5u);
  stage_.finish_next(&kBroken);
  EXPECT_TRUE(stage_.stopped_with(0, MUSTER_LANE_COMPUTE, Code::kDevice));
  EXPECT_TRUE(stage_.stopped_with(0, MUSTER_LANE_REDUCE, Code::kDependency));
  EXPECT_TRUE(stage_.stopped_with(1, MUSTER_LANE_REDUCE, Code::kDevice));
  EXPECT_TRUE(stage_.stopped_with(1, MUSTER_LANE_COPY, Code::kDependency));
  const std::uint64_t fault = stage_.stops.at({0, MUSTER_LANE_COMPUTE}).verdict.fault;
  for (const auto& [lane, stop] : stage_.stops) EXPECT_EQ(stop.verdict.fault, fault);
  stage_.finish_all();
  for (const std::uint32_t rank : {0U, 1U})
    EXPECT_EQ(stage_.graph.lanes()[Rank(rank)].load(MUSTER_LANE_REDUCE).given_up, 0u);
  EXPECT_FALSE(reached(0, first) || reached(0, one) || reached(1, other) || reached(1, last));
  EXPECT_TRUE(reached(1, apart) && reached(1, fine));
}

// Goal:   kernels behind a failed one on its own lane have failed too, and so has what waits for them.
TEST_F(StreamWaits, EndWhatWasLaunchedBehindALaneThatFailed) {
  kernel(0, MUSTER_LANE_COMPUTE);
  const std::uint64_t second = kernel(0, MUSTER_LANE_COMPUTE);
  const std::uint64_t behind = kernel(0, MUSTER_LANE_COPY, {second});
  ASSERT_EQ(stage_.launched.size(), 3u);
  stage_.finish_next(&kBroken);
  EXPECT_TRUE(stage_.stopped_with(0, MUSTER_LANE_COPY, Code::kDependency));
  stage_.finish_all();
  EXPECT_FALSE(reached(0, second) || reached(0, behind));
}

// Goal:   a member that waits for its peers behind a launched step does not meet them once that has failed.
TEST_F(StreamWaits, TakeAMemberBackWhosePointFails) {
  const std::uint64_t first = kernel(0, MUSTER_LANE_COMPUTE);
  reduce(0, {first});
  stage_.finish_next(&kBroken);
  EXPECT_TRUE(stage_.stopped_with(0, MUSTER_LANE_REDUCE, Code::kDependency));
  reduce(1);
  EXPECT_TRUE(stage_.launched.empty());
  EXPECT_TRUE(stage_.stopped_with(1, MUSTER_LANE_REDUCE, Code::kDevice));
}

// Goal:   after a reset a lane is no longer held by what was given up on it.
TEST_F(StreamWaits, GoOnAfterAReset) {
  const std::uint64_t first = kernel(0, MUSTER_LANE_COMPUTE);
  kernel(0, MUSTER_LANE_COPY, {first});
  stage_.finish_next(&kBroken);
  for (const std::uint32_t lane : {MUSTER_LANE_COMPUTE, MUSTER_LANE_COPY})
    stage_.graph.reset_lane(Rank(0), lane, stage_.now);
  stage_.finish_all();
  const std::uint64_t next = kernel(0, MUSTER_LANE_COPY, {kernel(0, MUSTER_LANE_COMPUTE)});
  EXPECT_EQ(stage_.launched.size(), 2u);
  stage_.finish_all();
  EXPECT_TRUE(reached(0, next));
}

// ---- random programs ---------------------------------------------------------------------------

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kVectors = 4;  // of each rank
constexpr std::size_t kElements = 3000;
using Vector = std::array<std::uint32_t, kElements>;
using Memory = std::array<std::array<Vector, kVectors>, kRanks>;

std::vector<Group> groups_of_four() {
  return {{"left", {Rank(0), Rank(1)}},
          {"right", {Rank(2), Rank(3)}},
          {"middle", {Rank(1), Rank(2)}},
          {"world", {Rank(0), Rank(1), Rank(2), Rank(3)}}};
}

// Copies between vectors of a rank, and sums of a vector over a group in place, on random lanes of two
// devices. Each start waits for the last starts of its rank that have used its vectors. Done in order by
// expect(), they give the same bits.
class Programs final : public Graph::Actions {
 public:
  Programs(std::uint64_t seed, bool waits)
      : graph_(test::with_waits({kRanks, 256, 3}, waits), groups_of_four(), *this), random_(seed) {
    pool_ = *device::Pool::start({.workers = 3, .depth = 256});
    for (auto& device : devices_) device = *device::open({}, *pool_);
    std::vector<std::unique_ptr<transport::Communicator>> communicators;
    for (const Group& group : graph_.groups())
      communicators.push_back(*transport::open_loopback(static_cast<std::int32_t>(group.ranks.size())));
    const RankTable<device::Device*> table(
        kRanks, [this](Rank rank) { return devices_[rank.value % devices_.size()].get(); });
    executor_.emplace(*Executor::open({table, MUSTER_LANE_CLASSES, 3}, std::move(communicators)));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) graph_.attached(Rank(rank));
    for (auto& vectors : *memory_)
      for (Vector& vector : vectors)
        for (std::uint32_t& element : vector) element = static_cast<std::uint32_t>(random_());
    *expected_ = *memory_;
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const auto lane = static_cast<std::uint32_t>(random_() % MUSTER_LANE_CLASSES);
      const auto from = static_cast<std::uint32_t>(random_() % kVectors);
      const auto to = static_cast<std::uint32_t>(random_() % kVectors);
      const std::size_t choice = random_() % (2 * graph_.groups().size());
      if (choice < graph_.groups().size())
        sum(static_cast<std::uint32_t>(choice), lane, from);
      else if (from != to)
        copy(static_cast<std::uint32_t>(random_() % kRanks), lane, from, to);
      if (random_() % 4 == 0) reap();
    }
    while (!executor_->idle()) {
      reap();
      std::this_thread::yield();
    }
    EXPECT_EQ(graph_.steps().in_flight(), 0u);
    EXPECT_EQ(retired_, plans_.size());
    EXPECT_EQ(refused_, "");
    EXPECT_TRUE(*memory_ == *expected_);
  }

  std::size_t behind = 0;  // steps that were launched behind others

  void launch(std::uint32_t step_index, const Step& step) override {
    behind += step.after.empty() ? 0 : 1;
    if (const Status status = executor_->launch(step_index, step); !status.ok()) refused_ += status.text();
  }
  void reached(Rank, std::uint32_t, std::uint64_t, const transport::MatchKey&) override {}
  void stopped(Rank, std::uint32_t, std::uint64_t, const Cause& cause) override { refused_ += cause.text; }
  void resumed(Rank, std::uint32_t, std::uint64_t) override {}
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool well) override { retired_ += well ? 1 : 0; }

 private:
  void reap() {
    executor_->poll([this](const Executor::Finished& finished) {
      graph_.finished(finished.step_index, now_, finished.failure);
    });
  }
  void start(std::uint32_t rank, std::uint32_t lane, Plan* plan, const Share::Bases& bases, std::uint32_t one,
             std::uint32_t other) {
    auto& users = users_[rank];
    Request request{Rank(rank), lane, graph_.lanes()[Rank(rank)].lane(lane).next_value(), plan, {}, Nanos(1)};
    request.waits[0] = users[one];
    if (other != one) request.waits[1] = users[other];
    request.bases = bases;
    users[one] = users[other] = shm::make_point(lane, request.value);
    ASSERT_EQ(graph_.submit(request, now_), Code::kOk);
  }
  static kernels::Tensor view(Vector& vector) {
    return {reinterpret_cast<std::byte*>(vector.data()), MUSTER_F32, 1, {kElements}, {1}};
  }
  void copy(std::uint32_t rank, std::uint32_t lane, std::uint32_t from, std::uint32_t to) {
    kernels::Args args;
    args.tensors = {view((*memory_)[rank][from]), view((*memory_)[rank][to])};
    const kernels::Kernel* row = kernels::find(MUSTER_KERNEL_COPY);
    plans_.push_back(std::make_unique<Plan>(Plan{KernelWork{row, args}, SessionId(), 0, 0, {}}));
    (*expected_)[rank][to] = (*expected_)[rank][from];
    start(rank, lane, plans_.back().get(), {}, from, to);
  }
  void sum(std::uint32_t group, std::uint32_t lane, std::uint32_t which) {
    Collective what = Stage::all_reduce(kElements);
    what.dtype = MUSTER_I32;
    const std::vector<Rank>& members = graph_.groups()[group].ranks;
    const auto ranks = static_cast<std::int32_t>(members.size());
    Vector total{};
    for (const Rank rank : members)
      for (std::size_t i = 0; i < kElements; ++i) total[i] += (*expected_)[rank.value][which][i];
    for (std::int32_t i = 0; i < ranks; ++i) {
      const std::uint32_t rank = members[static_cast<std::size_t>(i)].value;
      const Share share = *make_share(what, i, ranks, {});
      CollectiveWork work{GroupId(group), what, share, signature_of(what, share, ranks), ""};
      plans_.push_back(std::make_unique<Plan>(Plan{work, SessionId(), 0, 0, {}}));
      (*expected_)[rank][which] = total;
      auto* const bytes = reinterpret_cast<std::byte*>((*memory_)[rank][which].data());
      start(rank, lane, plans_.back().get(), {bytes, bytes}, which, which);
    }
  }

  std::unique_ptr<device::Pool> pool_;
  std::array<std::unique_ptr<device::Device>, 2> devices_;
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  std::unique_ptr<Memory> expected_ = std::make_unique<Memory>();
  std::array<std::array<std::uint64_t, kVectors>, kRanks> users_{};  // the last start that used each vector
  std::vector<std::unique_ptr<Plan>> plans_;
  std::optional<Executor> executor_;
  Graph graph_;
  std::mt19937_64 random_;
  Instant now_{0};
  std::size_t retired_ = 0;
  std::string refused_;
};

// Goal:   whatever streams wait for, programs give the bits that they give in order.
TEST(StreamWaitsProperty, GiveTheBitsOfTheProgramsOrder) {
  const std::uint64_t last = muster::test::property_cases(150);
  std::array<std::size_t, 2> behind{};
  for (std::uint64_t seed = 1; seed <= last; ++seed)
    for (const bool waits : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << (waits ? ", with waits" : ""));
      Programs programs(seed, waits);
      programs.run(80);
      behind[waits ? 1 : 0] += programs.behind;
      if (::testing::Test::HasFailure()) return;
    }
  EXPECT_EQ(behind[0], 0u);
  EXPECT_GT(behind[1], last * 10) << "too little waits";
}

// Goal:   no point is told before those that its start waits for, and none behind one that has failed,
//         however late a step fails.
// Method: random programs, whose steps end in order of launch and fail now and then; lanes are reset.
class Chains final : public Graph::Actions {
 public:
  explicit Chains(std::uint64_t seed)
      : plans_(world_of(kRanks), groups_of_four()),
        graph_(test::with_waits({kRanks, 1024, 4}, true), groups_of_four(), *this),
        random_(seed) {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) graph_.attached(Rank(rank));
  }

  void run() {
    for (int i = 0; i < 200; ++i) {
      const auto lane = static_cast<std::uint32_t>(random_() % 3);
      const std::size_t choice = random_() % (2 * graph_.groups().size());
      if (choice < graph_.groups().size()) {
        for (const Rank rank : graph_.groups()[choice].ranks)
          start(rank.value, lane,
                plans_.collective(static_cast<std::uint32_t>(choice), rank.value, Stage::all_reduce(4)));
      } else {
        start(static_cast<std::uint32_t>(random_() % kRanks), lane, plans_.kernel());
      }
      while (random_() % 2 == 0 && !launched_.empty()) finish();
      if (random_() % 10 == 0) graph_.tick(now_ += std::chrono::milliseconds(100));
    }
    for (int turn = 0; turn < 200; ++turn) {
      while (!launched_.empty()) finish();
      graph_.tick(now_ += std::chrono::milliseconds(100));
    }
    while (!launched_.empty()) finish();
    EXPECT_EQ(started_, retired_);
    EXPECT_EQ(graph_.steps().in_flight(), 0u);
    for (const RankLanes& lanes : graph_.lanes())
      for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane) {
        EXPECT_EQ(lanes.load(lane).given_up, 0u);
        EXPECT_EQ(lanes.load(lane).quarantined, 0u);
      }
  }

  std::size_t failed = 0;  // steps
  std::size_t behind = 0;  // starts that were given up behind those

  void launch(std::uint32_t step_index, const Step&) override { launched_.push_back(step_index); }
  void reached(Rank rank, std::uint32_t lane, std::uint64_t value, const transport::MatchKey&) override {
    const std::uint64_t point = shm::make_point(lane, value);
    reached_[{rank.value, point}] = true;
    const std::uint64_t wait = waits_[{rank.value, point}];
    EXPECT_TRUE(wait == 0 || reached_[std::pair(rank.value, wait)]) << "it waits for a point that failed";
  }
  void stopped(Rank, std::uint32_t, std::uint64_t, const Cause&) override {}
  void quarantined(Rank, std::uint32_t, std::uint32_t starts) override { behind += starts > 0 ? 1 : 0; }
  void resumed(Rank, std::uint32_t, std::uint64_t) override {}
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool) override { ++retired_; }

 private:
  void start(std::uint32_t rank, std::uint32_t lane, Plan* plan) {
    const LaneQueue& queue = graph_.lanes()[Rank(rank)].lane(lane);
    if (queue.failures().stopped()) graph_.reset_lane(Rank(rank), lane, now_);
    Request request{Rank(rank), lane, queue.next_value(), plan, {}, std::chrono::seconds(1)};
    if (random_() % 3 != 0) request.waits[0] = latest_[rank];
    latest_[rank] = shm::make_point(lane, request.value);
    waits_[{rank, latest_[rank]}] = request.waits[0];
    ++started_;
    ASSERT_EQ(graph_.submit(request, now_), Code::kOk);
  }
  void finish() {
    const std::uint32_t index = launched_.front();
    launched_.pop_front();
    const bool fails = random_() % 20 == 0;
    failed += fails ? 1 : 0;
    graph_.finished(index, now_, fails ? &kBroken : nullptr);
  }

  Stage plans_;  // whose graph stands still: it makes plans
  Graph graph_;
  std::mt19937_64 random_;
  Instant now_{0};
  std::deque<std::uint32_t> launched_;
  std::array<std::uint64_t, kRanks> latest_{};
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> waits_;  // by rank and point
  std::map<std::pair<std::uint32_t, std::uint64_t>, bool> reached_;
  std::size_t started_ = 0;
  std::size_t retired_ = 0;
};

TEST(StreamWaitsProperty, TellNoPointBehindOneThatFailed) {
  const std::uint64_t last = muster::test::property_cases(1000);
  std::size_t failed = 0;
  std::size_t behind = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Chains chains(seed);
    chains.run();
    failed += chains.failed;
    behind += chains.behind;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(failed, last);
  EXPECT_GT(behind, last);
}

}  // namespace
}  // namespace muster::scheduler
