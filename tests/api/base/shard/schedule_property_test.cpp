#include "api/base/shard/schedule.hpp"

#include "tests/api/base/shard/drawn_units.hpp"
#include "tests/api/base/shard/lanes.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard::test {
namespace {

using Indexes = std::vector<std::size_t>;
using Waits = std::vector<muster_point>;

enum Lane : std::size_t {
  kCompute,
  kSideCompute,
  kGather,
  kSideGather,
  kCopy,
  kReduce,
  kAllReduce,
  kOptimiser
};

// The values that a program's memory must hold for a unit once all submitted operations have run.
struct UnitTruth {
  std::uint64_t version = 0;  // of its shards
  std::optional<std::uint64_t> gathered{};
  std::size_t shard = 0, slice = 0, partial = 0, gradient_shard = 0;  // cells
  std::size_t gradients = 0, gradient_cells = 1;
  std::optional<std::uint64_t> whole_sum{}, partial_sum{}, shard_sum{};
  muster_point last = MUSTER_POINT_NONE;  // its latest kernel
};

struct Tally {
  std::uint64_t prefetches = 0, skipped = 0, changes = 0, slices = 0, failures = 0, refused = 0, gathers = 0,
                incomplete = 0, kept = 0;
};

// A random program of steps on a schedule, whose operations run on lanes.
class Program final : public UnitOperations {
 public:
  Program(std::uint64_t seed, Tally& tally)
      : random_(seed),
        drawn_(random_),
        lanes_(seed ^ 0x5EED),
        schedule_(drawn_.units, drawn_.depth, *this),
        tally_(tally) {
    side_compute_ = random_.below(4) == 0;
    side_gather_ = random_.below(3) == 0;
    replicas_ = random_.below(2) == 0;
    if (random_.below(12) == 0) operations_left_ = 1 + random_.below(60);
    places_ = lanes_.add_cells(cells_of(drawn_.place_bytes));
    const std::size_t gradients = lanes_.add_cells(cells_of(drawn_.gradient_bytes));
    for (const UnitSchedule::Facts& unit : drawn_.units) {
      UnitTruth truth;
      truth.shard = lanes_.add_cells(4);
      truth.slice = truth.shard + 1;
      truth.partial = truth.shard + 2;
      truth.gradient_shard = truth.shard + 3;
      truth.gradients = lanes_.add_cells(1);
      if (unit.gradient_bytes > 0) {
        truth.gradients = gradients + unit.gradient_offset / 64;
        truth.gradient_cells = cells_of(unit.gradient_bytes);
      }
      truths_.push_back(truth);
    }
    draw_prefetch_lists();
  }

  // Returns the first fault.
  std::string run() {
    Indexes modules = all_modules();
    update_shards();
    for (std::uint64_t steps = 2 + random_.below(3); steps > 0 && fault_.empty(); --steps) {
      if (random_.below(4) == 0) change(modules);
      step(modules);
      if (broken_) recover();
    }
    const UnitSchedule::Counts& counts = schedule_.counts();
    tally_.prefetches += counts.prefetches;
    tally_.skipped += counts.prefetches_skipped;
    tally_.gathers += counts.gathers;
    tally_.changes += schedule_.counts().order_changes;
    const std::string played = lanes_.play();
    return fault_.empty() ? played : fault_;
  }

  Result<muster_point> gather(std::size_t unit, GatherFrom from,
                              std::span<const muster_point> waits) override {
    MUSTER_RETURN_IF_ERROR(fail_now_and_then());
    UnitTruth& truth = truths_[unit];
    const bool slices = from == GatherFrom::kSlices;
    if (from == GatherFrom::kShards && truth.gathered != truth.version)
      note(fmt::format("shards of {} have changed, and its gather does not know", unit));
    if (!slices) truth.gathered = truth.version;
    const bool side = side_gather_ && (slices || unit % 2 == 1);
    return lanes_.submit(side ? kSideGather : kGather, fmt::format("gather {}", unit), waits,
                         {in_place(unit, std::nullopt, content(unit))},
                         Glance{slices ? truth.slice : truth.shard, content(unit)});
  }

  Result<muster_point> slice(std::size_t unit, std::span<const muster_point> waits) override {
    MUSTER_RETURN_IF_ERROR(fail_now_and_then());
    ++tally_.slices;
    return lanes_.submit(
        kCopy, fmt::format("slice {}", unit), waits,
        {in_place(unit, content(unit), std::nullopt), {truths_[unit].slice, 1, std::nullopt, content(unit)}});
  }

  Result<Reduced> reduce(std::size_t unit, Reduction how, std::span<const muster_point> waits) override {
    MUSTER_RETURN_IF_ERROR(fail_now_and_then());
    UnitTruth& truth = truths_[unit];
    if (how.add != truth.shard_sum.has_value() || how.add_partial != truth.partial_sum.has_value())
      note(fmt::format("the reduction of {} adds to the wrong things", unit));
    if (!truth.whole_sum && !(how.all_reduce && truth.partial_sum)) return Reduced{};
    std::vector<Access> accesses;
    if (truth.whole_sum)
      accesses.push_back({truth.gradients, truth.gradient_cells, truth.whole_sum, std::nullopt});
    const std::uint64_t sum = truth.whole_sum.value_or(0) + truth.partial_sum.value_or(0);
    truth.whole_sum.reset();
    const std::string name = fmt::format("reduction {}", unit);
    if (!how.all_reduce) {
      accesses.push_back({truth.partial, 1, truth.partial_sum, sum});
      truth.partial_sum = sum;
      const muster_point sent = lanes_.submit(kReduce, name, waits, accesses);
      return Reduced{.sent = sent, .ready = sent};
    }
    if (truth.partial_sum) accesses.push_back({truth.partial, 1, truth.partial_sum, std::nullopt});
    truth.partial_sum.reset();
    const Access result{truth.gradient_shard, 1, truth.shard_sum, truth.shard_sum.value_or(0) + sum};
    truth.shard_sum = result.after;
    if (!replicas_) accesses.push_back(result);
    Reduced reduced;
    reduced.sent = reduced.ready = lanes_.submit(kReduce, name, waits, accesses);
    if (replicas_)
      reduced.ready = lanes_.submit(kAllReduce, "all-" + name, std::array{reduced.sent}, {result});
    return reduced;
  }

  Result<muster_point> keep(std::size_t /*unit*/, std::span<const muster_point> /*waits*/) override {
    return MUSTER_POINT_NONE;
  }

 private:
  // ---- the model -------------------------------------------------------------------------------

  Indexes all_modules() const {
    Indexes modules;
    for (std::size_t unit = drawn_.has_root ? 1 : 0; unit < drawn_.units.size(); ++unit)
      if (modules.empty() || modules.back() != drawn_.units[unit].module)
        modules.push_back(drawn_.units[unit].module);
    return modules;
  }

  Indexes units_of(std::size_t module) const {
    Indexes units;
    for (std::size_t unit = drawn_.has_root ? 1 : 0; unit < drawn_.units.size(); ++unit)
      if (drawn_.units[unit].module == module) units.push_back(unit);
    return units;
  }

  void change(Indexes& modules) {
    if (modules.empty()) return;
    const std::size_t at = random_.below(modules.size());
    const std::uint64_t how = random_.below(3);
    if (how == 0)
      std::swap(modules[at], modules[random_.below(modules.size())]);
    else if (how == 1)
      modules.erase(modules.begin() + static_cast<std::ptrdiff_t>(at));
    else
      modules.push_back(modules[at]);
  }

  void draw_prefetch_lists() {
    const auto list = [&] {
      Indexes units;
      for (std::uint64_t count = random_.below(3); count > 0; --count)
        units.push_back(random_.below(drawn_.units.size()));
      return units;
    };
    if (random_.below(4) != 0) return;
    for (std::size_t unit = 0; unit < drawn_.units.size(); ++unit) {
      if (random_.below(2) == 0) schedule_.set_prefetch(unit, UnitSchedule::Pass::kForward, list());
      if (random_.below(2) == 0) schedule_.set_prefetch(unit, UnitSchedule::Pass::kBackward, list());
    }
  }

  std::uint64_t content(std::size_t unit) const { return Random(unit * 1000 + truths_[unit].version).next(); }

  Access in_place(std::size_t unit, std::optional<std::uint64_t> before,
                  std::optional<std::uint64_t> after) const {
    return {places_ + drawn_.units[unit].offset / 64, cells_of(drawn_.units[unit].bytes), before, after};
  }

  // ---- expectations of the schedule ------------------------------------------------------------

  void note(const std::string& fault) {
    if (fault_.empty()) fault_ = fault;
  }

  Status fail_now_and_then() {
    if (operations_left_ == 0 || --operations_left_ > 0) return {};
    broken_ = true;
    return Status(Code::kDevice, "it does not start");
  }

  // A call that must succeed, unless its operation fails.
  bool must(const Status& status) {
    expect_memory();
    if (!status.ok() && !broken_) note(status.text());
    return status.ok() && fault_.empty();
  }

  // Units that are whole share no memory, and the counts know them.
  void expect_memory() {
    std::uint64_t whole = 0;
    std::uint64_t slices = 0;
    for (std::size_t a = 0; a < drawn_.units.size(); ++a) {
      const UnitSchedule::Facts& unit = drawn_.units[a];
      (schedule_.is_whole(a) ? whole : slices) += schedule_.is_whole(a) ? unit.bytes : unit.slice_bytes;
      for (std::size_t b = 0; b < a && schedule_.is_whole(a); ++b)
        if (schedule_.is_whole(b) &&
            overlap(unit.offset, unit.bytes, drawn_.units[b].offset, drawn_.units[b].bytes))
          note(fmt::format("{} and {} are whole at once in one place", a, b));
    }
    const std::uint64_t counted = schedule_.counts().whole_bytes;
    if (whole > drawn_.place_bytes || counted < whole || counted > whole + slices)
      note(fmt::format("{} bytes are whole, {} counted, of {}", whole, counted, drawn_.place_bytes));
  }

  // ---- kernels ---------------------------------------------------------------------------------

  // A kernel of `units`, after their kernels before. On a side lane kernels may run beside others.
  muster_point kernel(const std::string& name, const Indexes& units, Waits waits,
                      std::vector<Access> accesses) {
    for (const std::size_t unit : units) waits.push_back(truths_[unit].last);
    const bool side = side_compute_ && random_.below(2) == 0;
    if (random_.below(2) == 0) waits.push_back(latest_kernel_);
    latest_kernel_ = lanes_.submit(side ? kSideCompute : kCompute, name, waits, std::move(accesses));
    for (const std::size_t unit : units) truths_[unit].last = latest_kernel_;
    return latest_kernel_;
  }

  muster_point after_all_kernels() {
    Waits waits;
    for (const UnitTruth& truth : truths_) waits.push_back(truth.last);
    return lanes_.submit(kCompute, "join", waits, {});
  }

  muster_point read(const std::string& name, const Indexes& units, const Waits& waits) {
    std::vector<Access> accesses;
    for (const std::size_t unit : units) accesses.push_back(in_place(unit, content(unit), std::nullopt));
    return kernel(name, units, waits, std::move(accesses));
  }

  // Adds a gradient to the whole gradients of a unit.
  Access add_gradient(std::size_t unit) {
    UnitTruth& truth = truths_[unit];
    const std::optional<std::uint64_t> before = truth.whole_sum;
    truth.whole_sum = before.value_or(0) + random_.next();
    return {truth.gradients, truth.gradient_cells, before, truth.whole_sum};
  }

  // ---- forward and backward --------------------------------------------------------------------

  Indexes with_part(const Indexes& units, std::uint32_t part) const {
    Indexes found;
    for (const std::size_t unit : units)
      if (drawn_.units[unit].parts > part && !(unit == lacking_ && part == lacking_part_))
        found.push_back(unit);
    return found;
  }

  bool begin_forward(const Indexes& units, Waits& ready) {
    for (const std::size_t unit : units) {
      ready.push_back(MUSTER_POINT_NONE);
      if (!must(schedule_.begin_forward(unit, ready.back()))) return false;
      if (!schedule_.is_whole(unit)) note(fmt::format("{} is not whole in forward", unit));
    }
    return true;
  }

  bool forward(std::size_t module) {
    for (std::uint32_t part = 0; part < 3; ++part) {
      const Indexes units = with_part(units_of(module), part);
      if (units.empty()) continue;
      Waits ready;
      if (!begin_forward(units, ready)) return false;
      if (random_.below(16) == 0 && !outside(module)) return false;
      const muster_point after = read(fmt::format("forward {}.{}", module, part), units, ready);
      for (const std::size_t unit : units)
        if (!must(schedule_.end_forward(unit, part, after))) return false;
    }
    return true;
  }

  bool backward(std::size_t module, UnitSchedule::BackwardEnd how) {
    for (std::uint32_t part = 3; part-- > 0;) {
      const Indexes units = with_part(units_of(module), part);
      if (units.empty()) continue;
      Waits waits;
      std::vector<Access> accesses;
      for (const std::size_t unit : units)
        if (!begin_backward(unit, waits, accesses)) return false;
      if (random_.below(4) == 0 && !recompute(units, part)) return false;
      const muster_point after =
          kernel(fmt::format("backward {}.{}", module, part), units, waits, std::move(accesses));
      for (const std::size_t unit : units)
        if (!end_backward(unit, part, after, how)) return false;
    }
    return true;
  }

  bool begin_backward(std::size_t unit, Waits& waits, std::vector<Access>& accesses) {
    std::array<muster_point, 2> ready{};
    if (!must(schedule_.begin_backward(unit, ready))) return false;
    if (drawn_.units[unit].whole_in_backward) {
      waits.push_back(ready[0]);
      accesses.push_back(in_place(unit, content(unit), std::nullopt));
    }
    if (!drawn_.units[unit].trains || random_.below(8) == 0) return true;
    waits.push_back(ready[1]);
    accesses.push_back(add_gradient(unit));
    return true;
  }

  bool end_backward(std::size_t unit, std::uint32_t part, muster_point after, UnitSchedule::BackwardEnd how) {
    muster_point reduced = MUSTER_POINT_NONE;
    tally_.kept += how.reduce ? 0 : 1;
    return must(schedule_.end_backward(unit, part, after, how, reduced));
  }

  // Activations are computed again.
  bool recompute(const Indexes& units, std::uint32_t part) {
    Waits ready;
    if (!begin_forward(units, ready)) return false;
    const muster_point after = read("recomputation", units, ready);
    for (const std::size_t unit : units)
      if (!must(schedule_.end_forward(unit, part, after))) return false;
    return true;
  }

  // Whether a unit that stays whole stands in nobody's way.
  bool is_alone(std::size_t unit) const {
    const UnitSchedule::Facts& one = drawn_.units[unit];
    for (std::size_t other = 0; other < drawn_.units.size(); ++other)
      if (other != unit &&
          overlap(one.offset, one.bytes, drawn_.units[other].offset, drawn_.units[other].bytes))
        return false;
    return true;
  }

  // Somebody looks at a unit that is not in use. It may be that there is no room for it.
  bool outside(std::size_t module_in_use) {
    const std::size_t unit = random_.below(drawn_.units.size());
    const bool root_in_use = drawn_.has_root && unit == 0;
    if (drawn_.units[unit].module == module_in_use || unit == lacking_ || root_in_use) return true;
    muster_point ready = MUSTER_POINT_NONE;
    const Status status = schedule_.unshard(unit, ready);
    if (status.code() == Code::kState && !broken_) {
      ++tally_.refused;
      return true;
    }
    if (!must(status)) return false;
    const muster_point after = read(fmt::format("look at {}", unit), {unit}, {ready});
    if (is_alone(unit) && random_.below(2) == 0) {  // it stays whole to the step's end
      held_.push_back(unit);
      held_ready_.push_back(ready);
      return true;
    }
    std::erase(held_, unit);
    return must(schedule_.reshard(unit, after));
  }

  // ---- steps -----------------------------------------------------------------------------------

  UnitSchedule::BackwardEnd drawn_end(bool last) {
    UnitSchedule::BackwardEnd how;
    if (last && random_.below(8) != 0) return how;
    how.reduce = drawn_.gradient_bytes > 0 || random_.below(2) == 0;
    how.all_reduce = last || random_.below(2) == 0;
    how.free = random_.below(2) == 0;
    return how;
  }

  bool forward_all(const Indexes& modules) {
    Waits ready;
    if (drawn_.has_root) {
      if (!begin_forward({0}, ready)) return false;
      read("forward of root", {0}, ready);
    }
    for (const std::size_t module : modules) {
      if (!forward(module)) return false;
      if (random_.below(24) == 0)
        schedule_.set_after_forward(random_.below(drawn_.units.size()), UnitSchedule::AfterForward::kSlice);
    }
    if (!drawn_.has_root) return true;
    return must(schedule_.end_forward(0, 0, read("end of root", {0}, {})));
  }

  bool backward_all(const Indexes& modules, bool last) {
    Waits waits;
    std::vector<Access> accesses;
    const UnitSchedule::BackwardEnd how = drawn_end(last);
    if (drawn_.has_root) {
      if (!begin_backward(0, waits, accesses)) return false;
      kernel("backward of root", {0}, waits, accesses);
    }
    for (std::size_t i = modules.size(); i-- > 0;) {
      const bool lacks = lacking_ < drawn_.units.size() && drawn_.units[lacking_].module == modules[i];
      if (!lacks && random_.below(10) == 0) continue;  // no gradient comes this way
      for (std::uint64_t times = !lacks && random_.below(12) == 0 ? 2 : 1; times > 0; --times)
        if (!backward(modules[i], how)) return false;
    }
    if (!drawn_.has_root || random_.below(10) == 0) return true;  // or the step's end comes to it
    return end_backward(0, 0, kernel("backward's end of root", {0}, {}, {}), how);
  }

  // One part of the last module's first unit never runs.
  void draw_lacking(const Indexes& modules) {
    lacking_ = drawn_.units.size();
    if (modules.empty() || random_.below(4) != 0) return;
    const std::size_t unit = units_of(modules.back()).front();
    if (std::count(modules.begin(), modules.end(), modules.back()) > 1 || drawn_.units[unit].parts == 1)
      return;
    lacking_ = unit;
    lacking_part_ = static_cast<std::uint32_t>(random_.below(drawn_.units[unit].parts));
  }

  bool microbatches(const Indexes& modules) {
    draw_lacking(modules);
    const std::uint64_t count = lacking_ < drawn_.units.size() ? 1 : 1 + random_.below(3);
    const bool forwards_first = random_.below(2) == 0;
    const bool trains = random_.below(8) != 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!forward_all(modules)) return false;
      if (trains && !forwards_first && !backward_all(modules, i + 1 == count)) return false;
    }
    for (std::uint64_t i = 0; trains && forwards_first && i < count; ++i)
      if (!backward_all(modules, i + 1 == count)) return false;
    return true;
  }

  // A forward that only the step's end will end.
  bool open_root() {
    Waits ready;
    if (!begin_forward({0}, ready)) return false;
    read("open forward of root", {0}, ready);
    return true;
  }

  void step(const Indexes& modules) {
    if (!must(schedule_.begin_step(shards_, unchanged_))) return;
    for (UnitTruth& truth : truths_) truth.shard_sum.reset();
    lacking_ = drawn_.units.size();
    held_.clear();
    held_ready_.clear();
    if (random_.below(8) == 0 && !outside(drawn_.units.size())) return;
    if (!microbatches(modules)) return;
    if (!held_.empty()) read("last look", held_, held_ready_);
    if (drawn_.has_root && random_.below(12) == 0 && !open_root()) return;
    const muster_point after = after_all_kernels();
    const auto ended = schedule_.end_step(after);
    bool partial = false;
    for (UnitTruth& truth : truths_) partial |= std::exchange(truth.partial_sum, std::nullopt).has_value();
    if (broken_) return;
    if (ended.has_value() == partial || (!ended && ended.error().code() != Code::kState))
      note("the end of the step does not say what became of partial sums");
    const Indexes expected = lacking_ < drawn_.units.size() ? Indexes{lacking_} : Indexes{};
    tally_.incomplete += expected.size();
    if (ended && *ended != expected)
      note("the end of the step names other units than those that lack a part");
    for (std::size_t i = 0; i < drawn_.units.size(); ++i)
      if (schedule_.is_whole(i) && drawn_.units[i].after_forward == UnitSchedule::AfterForward::kFree)
        note("a unit is whole between steps");
    for (std::size_t unit = 0; unit < truths_.size(); ++unit)
      if (truths_[unit].whole_sum) note(fmt::format("the gradients of {} were not reduced", unit));
    kernels_ended_ = after;
    update_shards();
  }

  void recover() {
    ++tally_.failures;
    lanes_.wait_for_all();
    schedule_.reset();
    if (schedule_.counts().whole_bytes != 0) note("something is whole after reset");
    for (UnitTruth& truth : truths_) truth.whole_sum = truth.partial_sum = truth.shard_sum = std::nullopt;
    broken_ = false;
    update_shards();
  }

  // The optimiser: for all units at once, or for each; or nothing changes.
  void update_shards() {
    shards_ = MUSTER_POINT_NONE;
    unchanged_ = random_.below(4) == 0 && updated_;
    if (unchanged_) return;
    Waits waits(schedule_.reduced().begin(), schedule_.reduced().end());
    waits.push_back(kernels_ended_);
    waits.push_back(updated_at_);
    const std::size_t lane = random_.below(2) == 0 ? kCompute : kOptimiser;
    unchanged_ = updated_ && random_.below(3) == 0;
    std::vector<Access> all;
    for (std::size_t unit = 0; unit < truths_.size(); ++unit) {
      UnitTruth& truth = truths_[unit];
      const std::optional<std::uint64_t> before = updated_ ? std::optional(content(unit)) : std::nullopt;
      ++truth.version;
      std::vector<Access> one{{truth.shard, 1, before, content(unit)}};
      if (truth.shard_sum) one.push_back({truth.gradient_shard, 1, truth.shard_sum, std::nullopt});
      if (unchanged_) {
        updated_at_ = lanes_.submit(lane, fmt::format("update {}", unit), waits, one);
        schedule_.shards_change(unit, updated_at_);
      }
      all.insert(all.end(), one.begin(), one.end());
    }
    if (!unchanged_) shards_ = updated_at_ = lanes_.submit(lane, "update", waits, all);
    updated_ = true;
  }

  Random random_;
  DrawnUnits drawn_;
  Lanes lanes_;
  UnitSchedule schedule_;
  Tally& tally_;
  bool side_compute_ = false, side_gather_ = false, replicas_ = false;
  std::uint64_t operations_left_ = 0;  // until one fails; 0: none does
  std::size_t places_ = 0;
  std::vector<UnitTruth> truths_;
  std::string fault_;
  bool broken_ = false, updated_ = false, unchanged_ = false;
  muster_point shards_ = MUSTER_POINT_NONE;
  muster_point latest_kernel_ = MUSTER_POINT_NONE;
  muster_point kernels_ended_ = MUSTER_POINT_NONE;
  muster_point updated_at_ = MUSTER_POINT_NONE;
  Indexes held_;  // units that unshard() holds
  Waits held_ready_;
  std::size_t lacking_ = 0;
  std::uint32_t lacking_part_ = 0;
};

// Goal:   no kernel ever reads or writes what another one still needs, whatever takes how long.
// Method: play random programs on lanes whose operations take random times, and look at all memory.
TEST(ScheduleProperty, GivesEachKernelWhatItReads) {
  const std::uint64_t last = muster::test::property_cases(20'000);
  Tally tally;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    const std::string fault = Program(seed, tally).run();
    ASSERT_EQ(fault, "") << "seed " << seed;
  }
  EXPECT_GT(tally.gathers, 10 * last);
  EXPECT_GT(tally.prefetches, last);
  EXPECT_GT(tally.skipped, last / 10);
  EXPECT_GT(tally.changes, last / 10);
  EXPECT_GT(tally.slices, last);
  EXPECT_GT(tally.kept, last / 4);
  EXPECT_GT(tally.refused, last / 100);
  EXPECT_GT(tally.incomplete, last / 100);
  EXPECT_GT(tally.failures, last / 100);
}

}  // namespace
}  // namespace muster::shard::test
