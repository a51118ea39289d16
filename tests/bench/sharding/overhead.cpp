#include "tests/bench/sharding/measurements.hpp"
#include "tests/bench/sharding/unit_set.hpp"

#include <iostream>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::bench::sharding {
namespace {

constexpr std::uint64_t kShardElements = 16;  // a cache line
constexpr int kTinyStepsBefore = 20;

struct StepTimes {
  std::vector<double> calls, whole;  // of each step: until the last call returns, and until all is done
};

// One step: forward of all units, backward of all units, wait.
double one_step(Rank& rank, UnitSet& set, int units) {
  const auto begin = std::chrono::steady_clock::now();
  set.begin_step();
  for (int unit = 0; unit < units; ++unit) {
    set.begin_forward(static_cast<muster_unit>(unit));
    set.end_forward(static_cast<muster_unit>(unit), 0, MUSTER_POINT_NONE);
  }
  for (int unit = units; unit-- > 0;) {
    set.begin_backward(static_cast<muster_unit>(unit));
    set.end_backward(static_cast<muster_unit>(unit), 0, MUSTER_POINT_NONE);
  }
  const std::array<muster_point, 2> done = set.end_step(MUSTER_POINT_NONE);
  const double called = seconds_since(begin);
  for (const muster_point point : done) rank.wait(point);
  return called;
}

// The work of those units, as plain starts of the same collectives: each gathered twice and reduced once.
class ByHand {
 public:
  ByHand(Rank& rank, int units) : rank_(rank) {
    const auto ranks = static_cast<std::uint64_t>(rank.ranks());
    for (int unit = 0; unit < units; ++unit) {
      const Memory shard = rank.allocate(kShardElements * sizeof(float));
      const Memory whole = rank.allocate(kShardElements * ranks * sizeof(float));
      muster_collective what = MUSTER_COLLECTIVE_INIT;
      what.op = MUSTER_ALL_GATHER;
      what.group = rank.world();
      what.dtype = MUSTER_F32;
      what.count = kShardElements;
      what.source = {shard.buffer, 0};
      what.target = {whole.buffer, 0};
      gathers_.push_back(rank.plan(what));
      what.op = MUSTER_REDUCE_SCATTER;
      what.redop = MUSTER_AVG;
      std::swap(what.source, what.target);
      reductions_.push_back(rank.plan(what));
    }
  }

  double step() {
    const auto begin = std::chrono::steady_clock::now();
    muster_point gathered = MUSTER_POINT_NONE;
    muster_point reduced = MUSTER_POINT_NONE;
    for (const muster_plan gather : gathers_) gathered = rank_.start(gather, MUSTER_LANE_GATHER);
    for (std::size_t unit = gathers_.size(); unit-- > 0;) {
      gathered = rank_.start(gathers_[unit], MUSTER_LANE_GATHER);
      reduced = rank_.start(reductions_[unit], MUSTER_LANE_REDUCE, {&gathered, 1});
    }
    const double called = seconds_since(begin);
    rank_.wait(gathered);
    rank_.wait(reduced);
    return called;
  }

 private:
  Rank& rank_;
  std::vector<muster_plan> gathers_, reductions_;
};

template<class Step>
StepTimes measure(Rank& rank, int steps, Step step) {
  StepTimes times;
  for (int i = 0; i < kTinyStepsBefore; ++i) step();
  for (int i = 0; i < steps; ++i) {
    rank.meet();
    const auto begin = std::chrono::steady_clock::now();
    times.calls.push_back(step());
    times.whole.push_back(seconds_since(begin));
  }
  return times;
}

}  // namespace

void measure_overhead(Rank& rank, const OverheadOptions& options) {
  UnitSet set(rank, "tiny");
  const std::int64_t rows = static_cast<std::int64_t>(kShardElements) * rank.ranks();
  for (int unit = 0; unit < options.units; ++unit) {
    const std::string name = "unit" + std::to_string(unit);
    set.add(name, {{name + ".weight", rows, 0}});
  }
  const StepTimes units = measure(rank, options.steps, [&] { return one_step(rank, set, options.units); });
  const auto steps = static_cast<double>(options.steps + kTinyStepsBefore);
  const muster_units_info info = set.info();
  const double calls = 2.0 + 4.0 * options.units;
  const double step_us = 1e6 * rank.largest(median(units.whole));
  const double calls_us = 1e6 * rank.largest(median(units.calls));
  nlohmann::ordered_json row = {{"ranks", rank.ranks()},
                                {"units", options.units},
                                {"calls", calls},
                                {"step_us", step_us},
                                {"us_per_unit", step_us / options.units},
                                {"us_per_call", calls_us / calls},
                                {"gathers_per_step", static_cast<double>(info.gathers) / steps},
                                {"reductions_per_step", static_cast<double>(info.reductions) / steps},
                                {"by_hand_us", nullptr}};
  if (rank.ranks() > 1) {
    ByHand hand(rank, options.units);
    const StepTimes times = measure(rank, options.steps, [&] { return hand.step(); });
    row["by_hand_us"] = 1e6 * rank.largest(median(times.whole));
  }
  if (rank.rank() == 0) std::cout << row.dump() << std::endl;
}

}  // namespace muster::bench::sharding
