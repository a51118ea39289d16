#include "api/base/shard/schedule.hpp"

#include "api/base/shard/arrange.hpp"

#include <algorithm>
#include <utility>

namespace muster::shard {
namespace {

constexpr std::uint64_t timeline_of(muster_point point) {
  return point >> 48;
}

// A bit for each part.
std::uint64_t parts_of(const UnitSchedule::Facts& unit) {
  return ~std::uint64_t{0} >> (64 - unit.parts);
}

std::vector<std::size_t> modules_of(std::span<const UnitSchedule::Facts> units) {
  std::vector<std::size_t> modules;
  for (const UnitSchedule::Facts& unit : units) modules.push_back(unit.module);
  return modules;
}

Status refused(const std::string& unit, const char* call, const std::string& why) {
  return Status(Code::kState, fmt::format("{} of unit \"{}\": {}", call, unit, why));
}

}  // namespace

void PointSet::add(muster_point point) {
  if (point == MUSTER_POINT_NONE) return;
  const auto same = std::ranges::find(points_, timeline_of(point), timeline_of);
  if (same == points_.end())
    points_.push_back(point);
  else
    *same = std::max(*same, point);
}

void PointSet::add(std::span<const muster_point> points) {
  for (const muster_point point : points) add(point);
}

UnitSchedule::UnitSchedule(std::vector<Facts> units, std::size_t depth, UnitOperations& operations)
    : depth_(depth), operations_(operations), order_(modules_of(units)), root_(units.size()) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].root) root_ = i;
    units_.emplace_back();
    units_.back().said = std::move(units[i]);
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Facts& a = units_[i].said;
    for (std::size_t j = 0; j < units_.size(); ++j) {
      const Facts& b = units_[j].said;
      if (i == j) continue;
      if (overlap(a.offset, a.bytes, b.offset, b.bytes)) units_[i].overlapping.push_back(j);
      if (overlap(a.gradient_offset, a.gradient_bytes, b.gradient_offset, b.gradient_bytes))
        units_[i].gradients_overlapping.push_back(j);
    }
  }
}

// ---- steps -------------------------------------------------------------------------------------

Status UnitSchedule::begin_step(muster_point shards, bool unchanged) {
  if (broken_)
    return Status(Code::kState, "a step of these units has failed; call muster_step_abandon first");
  if (in_step_) return Status(Code::kState, "the step before has not ended; call muster_step_end first");
  in_step_ = true;
  order_.begin_step();
  reduced_.clear();
  for (Unit& unit : units_) {
    unit.reduced = false;
    unit.ran = 0;
    unit.shards.add(shards);
    if (unchanged) continue;
    drop(unit);
    unit.changed = true;
  }
  return {};
}

void UnitSchedule::shards_change(std::size_t unit, muster_point point) {
  drop(units_[unit]);
  units_[unit].shards.add(point);
  units_[unit].changed = true;
}

Result<std::vector<std::size_t>> UnitSchedule::end_step(muster_point after) {
  if (!in_step_ || broken_) return fail(Code::kState, "no step of these units has begun");
  std::vector<std::size_t> incomplete;
  std::string partial;
  // In the order in which autograd would come to them: the last registered first.
  for (std::size_t i = units_.size(); i-- > 0;) {
    Unit& unit = units_[i];
    if (std::exchange(unit.pinned, false)) unit.uses.add(after);
    if (unit.ended != 0 || (unit.ran != 0 && unit.ran != parts_of(unit.said))) incomplete.push_back(i);
    muster_point reduced = MUSTER_POINT_NONE;
    if (unit.phase == Phase::kForward) {
      unit.uses.add(after);
      unit.phase = Phase::kIdle;
      unit.ended = 0;
    }
    if (unit.phase == Phase::kBackward || unit.holds_gradients) {
      unit.uses.add(after);
      MUSTER_RETURN_IF_ERROR(finish_backward(i, {}, reduced));
    }
    // A prefetch that nobody used: no later work waits for it, so the optimiser must.
    if (unit.state == State::kWhole && unit.uses.points().empty()) reduced_.add(unit.arrived);
    if (unit.said.after_forward != AfterForward::kKeep) drop(unit);
    if (std::exchange(unit.partial, false)) partial = unit.said.name;
  }
  in_step_ = false;
  if (!partial.empty())
    return fail(
        Code::kState,
        "the gradients of unit \"{}\" were reduced among its shards and never among its replicas; the "
        "last backward of a step must reduce both",
        partial);
  return incomplete;
}

void UnitSchedule::reset() {
  for (Unit& unit : units_) {
    drop(unit);
    unit.phase = Phase::kIdle;
    unit.pinned = unit.reduced = unit.partial = unit.holds_gradients = false;
    unit.ended = 0;
    unit.arrived = unit.gradients_sent = MUSTER_POINT_NONE;
    unit.shards.clear();
    unit.changed = true;
    unit.uses.clear();
  }
  reduced_.clear();
  in_step_ = broken_ = false;
}

UnitSchedule::Counts UnitSchedule::counts() const {
  Counts counts = counts_;
  counts.order_changes = order_.changes();
  return counts;
}

void UnitSchedule::add_uses(std::size_t unit, PointSet& points) const {
  points.add(units_[unit].arrived);  // which waited for earlier uses
  points.add(units_[unit].uses.points());
}

Status UnitSchedule::check_step(const Unit& unit, const char* call) const {
  if (broken_) return refused(unit.said.name, call, "this step has failed; call muster_step_abandon");
  if (!in_step_) return refused(unit.said.name, call, "no step has begun; call muster_step_begin first");
  return {};
}

// ---- memory ------------------------------------------------------------------------------------

void UnitSchedule::count(std::int64_t bytes) {
  counts_.whole_bytes += static_cast<std::uint64_t>(bytes);
  counts_.whole_bytes_peak = std::max(counts_.whole_bytes_peak, counts_.whole_bytes);
}

void UnitSchedule::drop(Unit& unit) {
  if (unit.state == State::kWhole) count(-static_cast<std::int64_t>(unit.said.bytes));
  if (unit.state == State::kSliced) count(-static_cast<std::int64_t>(unit.said.slice_bytes));
  if (std::exchange(unit.state, State::kSharded) == State::kWhole)
    operations_.given_up(static_cast<std::size_t>(&unit - units_.data()), *this);
}

Status UnitSchedule::Unit::check_place(std::span<const Unit> all) const {
  for (const std::size_t index : overlapping) {
    const Unit& other = all[index];
    if (other.state == State::kWhole && (other.phase != Phase::kIdle || other.pinned))
      return failure(Code::kState,
                     "unit \"{}\" is needed while \"{}\" is in use, and the two share their place; "
                     "give both one module, or end the use of \"{}\" first",
                     said.name, other.said.name, other.said.name);
  }
  return {};
}

Status UnitSchedule::gather(std::size_t index) {
  Unit& unit = units_[index];
  if (unit.state == State::kWhole) return {};
  MUSTER_RETURN_IF_ERROR(unit.check_place(units_));
  for (const std::size_t other : unit.overlapping)
    if (units_[other].state == State::kWhole) drop(units_[other]);
  const UnitOperations::GatherFrom from = unit.state == State::kSliced ? UnitOperations::GatherFrom::kSlices
                                          : unit.changed ? UnitOperations::GatherFrom::kChangedShards
                                                         : UnitOperations::GatherFrom::kShards;
  PointSet waits = unit.uses;
  waits.add(unit.arrived);  // a prefetch in vain, from slices perhaps, on a timeline of its own
  for (const std::size_t other : unit.overlapping) {
    waits.add(units_[other].arrived);
    waits.add(units_[other].uses.points());
  }
  if (from != UnitOperations::GatherFrom::kSlices) waits.add(unit.shards.points());
  auto arrived = operations_.gather(index, from, waits.points());
  if (!arrived) {
    broken_ = true;
    return std::move(arrived).error();
  }
  drop(unit);
  if (from == UnitOperations::GatherFrom::kChangedShards) unit.changed = false;
  unit.state = State::kWhole;
  unit.arrived = *arrived;
  unit.uses.clear();
  count(static_cast<std::int64_t>(unit.said.bytes));
  ++counts_.gathers;
  return {};
}

// Gathers what fits without freeing anything.
Status UnitSchedule::prefetch(std::span<const std::size_t> units) {
  for (const std::size_t index : units) {
    const Unit& unit = units_[index];
    if (unit.state == State::kWhole) continue;
    const auto whole = [&](std::size_t other) { return units_[other].state == State::kWhole; };
    if (std::ranges::any_of(unit.overlapping, whole)) {
      ++counts_.prefetches_skipped;
      break;
    }
    MUSTER_RETURN_IF_ERROR(gather(index));
    ++counts_.prefetches;
  }
  return {};
}

Status UnitSchedule::unshard(std::size_t unit, muster_point& ready) {
  MUSTER_RETURN_IF_ERROR(check_step(units_[unit], "muster_unit_unshard"));
  MUSTER_RETURN_IF_ERROR(gather(unit));
  units_[unit].pinned = true;
  ready = units_[unit].arrived;
  return {};
}

Status UnitSchedule::reshard(std::size_t unit, muster_point after) {
  MUSTER_RETURN_IF_ERROR(check_step(units_[unit], "muster_unit_reshard"));
  if (units_[unit].phase != Phase::kIdle)
    return refused(units_[unit].said.name, "muster_unit_reshard", "its forward or backward has not ended");
  units_[unit].uses.add(after);
  units_[unit].pinned = false;
  drop(units_[unit]);
  return {};
}

// ---- forward -----------------------------------------------------------------------------------

Status UnitSchedule::begin_forward(std::size_t index, muster_point& ready) {
  Unit& unit = units_[index];
  MUSTER_RETURN_IF_ERROR(check_step(unit, "muster_unit_forward_begin"));
  const bool is_new = unit.phase == Phase::kIdle;  // else another part of it, or a recomputation in backward
  if (is_new && root_ < units_.size() && index != root_ && order_.is_first())
    return refused(unit.said.name, "muster_unit_forward_begin",
                   fmt::format("the root, \"{}\", must begin first in each step", units_[root_].said.name));
  const bool demanded = unit.state != State::kWhole;
  MUSTER_RETURN_IF_ERROR(gather(index));
  counts_.demands += demanded ? 1 : 0;
  ready = unit.arrived;
  if (!is_new) return {};
  unit.phase = Phase::kForward;
  order_.begin(index);
  return prefetch(unit.forward_prefetch ? *unit.forward_prefetch : order_.next(depth_));
}

bool UnitSchedule::Unit::end_part(std::uint32_t part, std::uint64_t parts) {
  ended |= std::uint64_t{1} << part;
  if ((ended & parts) != parts) return false;
  ended = 0;
  return true;
}

Status UnitSchedule::end_forward(std::size_t index, std::uint32_t part, muster_point after) {
  Unit& unit = units_[index];
  MUSTER_RETURN_IF_ERROR(check_step(unit, "muster_unit_forward_end"));
  if (unit.phase == Phase::kIdle)
    return refused(unit.said.name, "muster_unit_forward_end", "its forward has not begun");
  unit.uses.add(after);
  if (unit.phase == Phase::kBackward || !unit.end_part(part, parts_of(unit.said))) return {};
  unit.phase = Phase::kIdle;
  unit.ran = parts_of(unit.said);
  order_.end(index);
  if (unit.pinned || unit.said.after_forward == AfterForward::kKeep) return {};
  const bool slices = unit.said.after_forward == AfterForward::kSlice;
  if (slices) {
    const auto copied = operations_.slice(index, std::span(&unit.arrived, 1));
    if (!copied) {
      broken_ = true;
      return copied.error();
    }
    unit.uses.add(*copied);
  }
  drop(unit);
  if (slices) {
    unit.state = State::kSliced;
    count(static_cast<std::int64_t>(unit.said.slice_bytes));
  }
  return {};
}

// ---- backward ----------------------------------------------------------------------------------

Status UnitSchedule::Unit::check_gradient_place(std::span<const Unit> all) const {
  for (const std::size_t index : gradients_overlapping) {
    const Unit& other = all[index];
    if (other.holds_gradients)
      return refused(said.name, "muster_unit_backward_begin",
                     fmt::format("its gradients would overwrite those that \"{}\" keeps; to keep gradients, "
                                 "make the units with MUSTER_UNITS_KEEP_GRADIENTS",
                                 other.said.name));
    if (other.phase == Phase::kBackward)
      return refused(
          said.name, "muster_unit_backward_begin",
          fmt::format("its gradients would overwrite those of \"{}\", whose backward has not ended",
                      other.said.name));
  }
  return {};
}

Status UnitSchedule::begin_backward(std::size_t index, std::span<muster_point, 2> ready) {
  Unit& unit = units_[index];
  MUSTER_RETURN_IF_ERROR(check_step(unit, "muster_unit_backward_begin"));
  const bool is_new = unit.phase != Phase::kBackward;
  if (is_new) {
    if (unit.phase == Phase::kForward && unit.ended == 0)
      return refused(unit.said.name, "muster_unit_backward_begin", "its forward has not ended");
    if (unit.phase == Phase::kIdle && !order_.can_go_back(index))
      return refused(unit.said.name, "muster_unit_backward_begin",
                     "a backward needs a forward before it in the step");
    MUSTER_RETURN_IF_ERROR(unit.check_gradient_place(units_));
  }
  if (unit.said.whole_in_backward) {
    const bool demanded = unit.state != State::kWhole;
    MUSTER_RETURN_IF_ERROR(gather(index));
    counts_.demands += demanded ? 1 : 0;
    ready[0] = unit.arrived;
  }
  PointSet sent;
  sent.add(unit.gradients_sent);
  for (const std::size_t other : unit.gradients_overlapping) sent.add(units_[other].gradients_sent);
  ready[1] = sent.points().empty() ? MUSTER_POINT_NONE : sent.points().front();
  if (!is_new) return {};
  if (unit.phase == Phase::kForward) {  // the forward of a part that never ran
    order_.end(index);
    unit.ran |= std::exchange(unit.ended, 0);
  }
  unit.phase = Phase::kBackward;
  std::vector<std::size_t> next = order_.go_back(index, depth_);
  if (unit.backward_prefetch) next = *unit.backward_prefetch;
  std::erase_if(next, [&](std::size_t other) { return !units_[other].said.whole_in_backward; });
  return prefetch(next);
}

Status UnitSchedule::check_backward(std::size_t unit, const char* call) const {
  MUSTER_RETURN_IF_ERROR(check_step(units_[unit], call));
  if (units_[unit].phase == Phase::kBackward) return {};
  return refused(units_[unit].said.name, call, "its backward has not begun");
}

Status UnitSchedule::end_backward(std::size_t index, std::uint32_t part, muster_point after, BackwardEnd how,
                                  muster_point& reduced) {
  Unit& unit = units_[index];
  reduced = MUSTER_POINT_NONE;
  MUSTER_RETURN_IF_ERROR(check_backward(index, "muster_unit_backward_end"));
  unit.uses.add(after);
  if (!unit.end_part(part, unit.ran)) return {};
  return finish_backward(index, how, reduced);
}

Status UnitSchedule::finish_backward(std::size_t index, BackwardEnd how, muster_point& reduced) {
  Unit& unit = units_[index];
  unit.phase = Phase::kIdle;
  unit.ended = 0;
  unit.holds_gradients = unit.said.trains && !how.reduce;
  PointSet waits = unit.uses;
  waits.add(unit.shards.points());  // the optimiser has read the gradients of the step before
  if (unit.holds_gradients) {
    const auto kept = operations_.keep(index, waits.points());
    if (!kept) {
      broken_ = true;
      return kept.error();
    }
    if (*kept != MUSTER_POINT_NONE) unit.gradients_sent = *kept;
  } else if (unit.said.trains) {
    const auto points = operations_.reduce(
        index, {.add = unit.reduced, .add_partial = unit.partial, .all_reduce = how.all_reduce},
        waits.points());
    if (!points) {
      broken_ = true;
      return points.error();
    }
    reduced = points->ready;
    if (reduced != MUSTER_POINT_NONE) {  // else there were no gradients, and nothing has changed
      unit.gradients_sent = points->sent;
      reduced_.add(reduced);
      unit.partial = !how.all_reduce;
      unit.reduced = unit.reduced || how.all_reduce;
      ++counts_.reductions;
    }
  }
  if (how.free && !unit.pinned) drop(unit);
  return {};
}

}  // namespace muster::shard
