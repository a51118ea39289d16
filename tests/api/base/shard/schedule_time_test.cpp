// How long a step takes: lanes with given times on a virtual clock, so nothing here depends on a machine.
#include "api/base/shard/arrange.hpp"
#include "api/base/shard/schedule.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

enum Lane : std::size_t { kCompute, kGather, kReduce, kAllReduce };

struct Times {
  std::uint64_t compute = 100;  // of a unit, forward; twice that backward
  std::uint64_t gather = 100;
  std::uint64_t scatter = 100;
  std::uint64_t all_reduce = 100;
};

// Lanes in order; an operation begins when its lane is free and its waits are reached.
class Clock final : public UnitOperations {
 public:
  explicit Clock(Times times) : times_(times) {}

  Result<muster_point> gather(std::size_t /*unit*/, GatherFrom /*from*/,
                              std::span<const muster_point> waits) override {
    return run(kGather, times_.gather, waits);
  }
  Result<muster_point> slice(std::size_t /*unit*/, std::span<const muster_point> waits) override {
    return run(kGather, 0, waits);
  }
  Result<Reduced> reduce(std::size_t /*unit*/, Reduction /*how*/,
                         std::span<const muster_point> waits) override {
    const muster_point sent = run(kReduce, times_.scatter, waits);
    return Reduced{sent, run(kAllReduce, times_.all_reduce, {&sent, 1})};
  }
  Result<muster_point> keep(std::size_t /*unit*/, std::span<const muster_point> /*waits*/) override {
    return MUSTER_POINT_NONE;
  }
  muster_point run(Lane lane, std::uint64_t time, std::span<const muster_point> waits) {
    std::vector<std::uint64_t>& ends = ends_[lane];
    std::uint64_t begin = ends.empty() ? 0 : ends.back();
    for (const muster_point wait : waits)
      if (wait != MUSTER_POINT_NONE) begin = std::max(begin, ends_[(wait >> 48) - 1][(wait & 0xFFFFFF) - 1]);
    ends.push_back(begin + time);
    return ((muster_point{lane} + 1) << 48) | ends.size();
  }
  muster_point compute(std::uint64_t times, std::span<const muster_point> waits) {
    return run(kCompute, times * times_.compute, waits);
  }
  std::uint64_t end() const {
    std::uint64_t end = 0;
    for (const auto& [lane, ends] : ends_) end = std::max(end, ends.back());
    return end;
  }

 private:
  Times times_;
  std::map<std::size_t, std::vector<std::uint64_t>> ends_;
};

// The time of one step over `count` units, with so many modules of prefetch.
std::uint64_t time_of_step(std::size_t count, std::size_t prefetch, Times times) {
  std::vector<Arrangement::Unit> arranged;
  for (std::size_t i = 0; i < count; ++i) arranged.push_back({"unit", 64, i, false});
  const auto places = arrange(arranged, prefetch, 0);
  const auto gradients = arrange(arranged, 1, 0);
  std::vector<UnitSchedule::Facts> units;
  for (std::size_t i = 0; i < count; ++i) {
    UnitSchedule::Facts unit;
    unit.name = "unit";
    unit.module = i;
    unit.bytes = unit.gradient_bytes = 64;
    unit.offset = places->offsets[i];
    unit.gradient_offset = gradients->offsets[i];
    units.push_back(unit);
  }
  Clock clock(times);
  UnitSchedule schedule(units, places->depth, clock);
  EXPECT_TRUE(schedule.begin_step(MUSTER_POINT_NONE, false).ok());
  muster_point last = MUSTER_POINT_NONE;
  for (std::size_t i = 0; i < count; ++i) {
    muster_point ready = MUSTER_POINT_NONE;
    EXPECT_TRUE(schedule.begin_forward(i, ready).ok());
    last = clock.compute(1, {&ready, 1});
    EXPECT_TRUE(schedule.end_forward(i, 0, last).ok());
  }
  for (std::size_t i = count; i-- > 0;) {
    muster_point ready[2] = {};
    EXPECT_TRUE(schedule.begin_backward(i, ready).ok());
    last = clock.compute(2, ready);
    muster_point reduced = MUSTER_POINT_NONE;
    EXPECT_TRUE(schedule.end_backward(i, 0, last, {}, reduced).ok());
  }
  EXPECT_TRUE(schedule.end_step(last).has_value());
  return clock.end();
}

std::uint64_t exposed(std::size_t count, std::size_t prefetch, Times times) {
  return time_of_step(count, prefetch, times) -
         time_of_step(count, prefetch,
                      {.compute = times.compute, .gather = 0, .scatter = 0, .all_reduce = 0});
}

// Goal:   where gathers take as long as computing, prefetch hides more than half of what is exposed without.
TEST(UnitScheduleTime, PrefetchHidesGathers) {
  for (const std::size_t count : {4, 8, 32}) {
    const Times times{.scatter = 0, .all_reduce = 0};
    const std::uint64_t without = exposed(count, 0, times);
    const std::uint64_t with = exposed(count, 1, times);
    EXPECT_EQ(without, 2 * count * times.gather) << "every gather is exposed";
    EXPECT_LE(2 * with, without) << count;
  }
}

// Goal:   case F14: in forward only the first gather is exposed, and replicas are reduced beside gathers and
//         scatters.
TEST(UnitScheduleTime, OnlyEndsAreExposed) {
  const Times times{.compute = 100, .gather = 80, .scatter = 90, .all_reduce = 90};
  // The first gather, the gather between forward and backward, and the last unit's reductions.
  EXPECT_EQ(exposed(16, 1, times), 80U + 80U + 90U + 90U);
}

// More than one module ahead helps where one gather is longer than one unit computes.
TEST(UnitScheduleTime, DeeperPrefetchHidesUnevenTimes) {
  const Times times{.compute = 100, .gather = 130, .scatter = 0, .all_reduce = 0};
  EXPECT_LE(exposed(16, 2, times), exposed(16, 1, times));
  EXPECT_LE(exposed(16, 1, times), exposed(16, 0, times));
}

}  // namespace
}  // namespace muster::shard
