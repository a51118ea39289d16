// A schedule of units whose operations only write down what was asked, and a model that plays on it.
#pragma once

#include "api/base/shard/arrange.hpp"
#include "api/base/shard/schedule.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard::test {

using Points = std::vector<muster_point>;

enum class Timeline : std::uint64_t { kCompute = 1, kGather, kCopy, kReduce, kAllReduce, kOptimiser };

constexpr muster_point point_of(Timeline timeline, std::uint64_t value) {
  return (static_cast<std::uint64_t>(timeline) << 48) | value;
}

// Each operation becomes a word: "AG0" is a gather of the unit named 0, "SL0" its slice, "RS0" its reduction.
// A unit that stops being whole is "free0".
class Recorder final : public UnitOperations {
 public:
  explicit Recorder(std::span<const UnitSchedule::Facts> units) {
    for (const UnitSchedule::Facts& unit : units) names_.push_back(unit.name);
    whole_.resize(names_.size());
  }

  Result<muster_point> gather(std::size_t unit, GatherFrom from,
                              std::span<const muster_point> waited) override {
    froms.push_back(from);
    MUSTER_RETURN_IF_ERROR(note("AG", unit, waited));
    return next(Timeline::kGather);
  }
  Result<muster_point> slice(std::size_t unit, std::span<const muster_point> waited) override {
    MUSTER_RETURN_IF_ERROR(note("SL", unit, waited));
    return next(Timeline::kCopy);
  }
  Result<Reduced> reduce(std::size_t unit, Reduction how, std::span<const muster_point> waited) override {
    hows.push_back(how);
    if (without_gradients) return Reduced{};
    MUSTER_RETURN_IF_ERROR(note("RS", unit, waited));
    const muster_point sent = next(Timeline::kReduce);
    return Reduced{.sent = sent, .ready = how.all_reduce ? next(Timeline::kAllReduce) : sent};
  }
  Result<muster_point> keep(std::size_t /*unit*/, std::span<const muster_point> /*waited*/) override {
    return keeping_takes_time ? next(Timeline::kReduce) : MUSTER_POINT_NONE;
  }

  // Writes down which units are no longer whole.
  void look(const UnitSchedule& now) {
    for (std::size_t unit = 0; unit < names_.size(); ++unit) {
      const bool whole = now.is_whole(unit);
      if (whole_[unit] && !whole) trace_.push_back("free" + names_[unit]);
      whole_[unit] = whole;
    }
  }
  muster_point next(Timeline timeline) { return point_of(timeline, ++values_[timeline]); }

  // The words since it was asked last.
  std::string trace() {
    std::string text;
    for (const std::string& word : std::exchange(trace_, {})) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  // The same without "free".
  std::string operations() {
    std::erase_if(trace_, [](const std::string& word) { return word.starts_with("free"); });
    return trace();
  }

  const UnitSchedule* schedule = nullptr;
  bool without_gradients = false;
  bool keeping_takes_time = false;
  std::string failing;                  // this operation fails
  std::map<std::string, Points> waits;  // of each operation's latest
  std::vector<GatherFrom> froms;
  std::vector<Reduction> hows;

 private:
  Status note(const std::string& what, std::size_t unit, std::span<const muster_point> waited) {
    const std::string word = what + names_[unit];
    if (word == failing) return Status(Code::kDevice, word + " does not start");
    look(*schedule);
    trace_.push_back(word);
    waits[word] = {waited.begin(), waited.end()};
    return {};
  }

  std::vector<std::string> names_;
  std::vector<bool> whole_;
  std::vector<std::string> trace_;
  std::map<Timeline, std::uint64_t> values_;
};

// A model of units on a schedule. Its calls must succeed; wrong ones are made on `schedule`.
struct Model {
  Recorder recorder;
  UnitSchedule schedule;

  Model(const std::vector<UnitSchedule::Facts>& units, std::size_t depth)
      : recorder(units), schedule(units, depth, recorder) {
    recorder.schedule = &schedule;
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  muster_point compute() { return recorder.next(Timeline::kCompute); }

  void begin_step() { expect(schedule.begin_step(recorder.next(Timeline::kOptimiser), false)); }
  std::vector<std::size_t> end_step() {
    auto incomplete = schedule.end_step(compute());
    EXPECT_TRUE(incomplete.has_value()) << incomplete.error().text();
    recorder.look(schedule);
    return incomplete.value_or(std::vector<std::size_t>{});
  }
  muster_point begin_forward(std::size_t unit) {
    muster_point ready = MUSTER_POINT_NONE;
    expect(schedule.begin_forward(unit, ready));
    return ready;
  }
  muster_point end_forward(std::size_t unit, std::uint32_t part = 0) {
    const muster_point after = compute();
    expect(schedule.end_forward(unit, part, after));
    return after;
  }
  std::array<muster_point, 2> begin_backward(std::size_t unit) {
    std::array<muster_point, 2> ready{};
    expect(schedule.begin_backward(unit, ready));
    return ready;
  }
  muster_point end_backward(std::size_t unit, UnitSchedule::BackwardEnd how = {}, std::uint32_t part = 0) {
    muster_point reduced = MUSTER_POINT_NONE;
    expect(schedule.end_backward(unit, part, compute(), how, reduced));
    return reduced;
  }
  muster_point forward(std::size_t unit) {
    begin_forward(unit);
    return end_forward(unit);
  }
  muster_point backward(std::size_t unit, UnitSchedule::BackwardEnd how = {}) {
    begin_backward(unit);
    return end_backward(unit, how);
  }
  // Unit 0 is the root: the forward of the others is a part of its own.
  void forward_all(std::size_t units) {
    begin_forward(0);
    for (std::size_t unit = 1; unit < units; ++unit) forward(unit);
    end_forward(0);
  }
  void backward_blocks(std::size_t units, UnitSchedule::BackwardEnd how = {}) {
    for (std::size_t unit = units; unit-- > 1;) backward(unit, how);
  }
  void backward_all(std::size_t units, UnitSchedule::BackwardEnd how = {}) {
    begin_backward(0);
    backward_blocks(units, how);
    end_backward(0, how);
  }

 private:
  void expect(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.text();
    recorder.look(schedule);
  }
};

// A root and `blocks` blocks of 64 bytes each, named 0 and on, placed for `depth`.
inline std::vector<UnitSchedule::Facts> blocks_and_root(
    std::size_t blocks, UnitSchedule::AfterForward root, std::size_t depth = 1,
    UnitSchedule::AfterForward block = UnitSchedule::AfterForward::kFree) {
  std::vector<Arrangement::Unit> arranged{{.name = "root", .bytes = 64, .module = 0, .apart = true}};
  for (std::size_t i = 0; i < blocks; ++i)
    arranged.push_back({.name = std::to_string(i), .bytes = 64, .module = i + 1, .apart = false});
  for (Arrangement::Unit& unit : arranged)
    unit.apart = unit.apart || block == UnitSchedule::AfterForward::kKeep;
  const Arrangement arrangement = arrange(arranged, depth, 0).value();
  std::vector<UnitSchedule::Facts> units;
  for (std::size_t i = 0; i < arranged.size(); ++i) {
    units.push_back({.name = arranged[i].name, .module = i, .bytes = 64, .slice_bytes = 16});
    units.back().offset = arrangement.offsets[i];
    units.back().after_forward = i == 0 ? root : block;
    units.back().root = i == 0;
  }
  return units;
}

}  // namespace muster::shard::test
