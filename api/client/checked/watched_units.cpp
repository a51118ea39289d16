#include "api/client/checked/watched_units.hpp"

#include "api/client/units/unit_starts.hpp"

#include "api/base/dtype.hpp"
#include "api/client/session/session.hpp"

#include <algorithm>
#include <utility>

#include <muster/kernels.h>

namespace muster::client {
namespace {

constexpr double kSpoilt = 255;
constexpr auto kSpoiltByte = std::byte{0xFF};

std::uint64_t gradient_bytes(const UnitFacts& facts) {
  return facts.whole_gradient_elements * dtype_bytes(facts.reduce_dtype);
}

bool share_bytes(const std::byte* a, std::uint64_t a_bytes, const std::byte* b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

muster_tensor bytes_of(muster_range start, std::uint64_t bytes) {
  return muster_view1(start.buffer, start.offset_bytes, MUSTER_U8, static_cast<std::int64_t>(bytes));
}

}  // namespace

Result<std::unique_ptr<UnitWatch>> watch_units(const UnitWatch::Set& set) {
  CheckMode* const check = set.session->check();
  if (check == nullptr) return std::unique_ptr<UnitWatch>();
  return WatchedUnits::make(*check, set);
}

WatchedUnits::WatchedUnits(CheckMode& check, const UnitWatch::Set& set)
    : check_(check),
      set_(set),
      watched_(set.units.size()),
      lanes_(set.session, kUnitLanes),
      memory_(set.session),
      replicas_(check, set) {}

Result<std::unique_ptr<UnitWatch>> WatchedUnits::make(CheckMode& check, const UnitWatch::Set& set) {
  std::unique_ptr<WatchedUnits> made(new WatchedUnits(check, set));
  MUSTER_RETURN_IF_ERROR(made->lanes_.open(set.name + "/check"));
  for (std::size_t unit = 0; unit < set.units.size(); ++unit) MUSTER_RETURN_IF_ERROR(made->prepare(unit));
  return std::unique_ptr<UnitWatch>(std::move(made));
}

Result<muster_plan> WatchedUnits::spoil(muster_range start, std::uint64_t bytes) {
  return memory_.plan(muster_fill(bytes_of(start, bytes), kSpoilt));
}

const std::byte* WatchedUnits::address_of(muster_range range) const {
  const std::byte* const first = check_.buffers().extent_of(range.buffer).first;
  return first == nullptr ? nullptr : first + range.offset_bytes;
}

Status WatchedUnits::prepare(std::size_t unit) {
  Unit& its = *set_.units[unit];
  const UnitFacts& facts = its.facts();
  Watched& watched = watched_[unit];
  const muster_range whole = its.all_gather().whole();
  if (facts.shard.ranks > 1 && !facts.shares && facts.whole_bytes > 0) watched.place = address_of(whole);
  if (watched.place != nullptr) {
    watched.place_bytes = facts.whole_bytes;
    check_.open(watched.place, watched.place + watched.place_bytes);  // another unit's, perhaps
    MUSTER_ASSIGN_OR_RETURN(watched.spoil_place, spoil(whole, facts.whole_bytes));
    MUSTER_ASSIGN_OR_RETURN(watched.spoilt, lanes_.start(watched.spoil_place, MUSTER_LANE_GATHER, {}));
    close(unit);
  }
  check_.buffers().name(its.shards(), fmt::format("shards of unit \"{}\"", facts.name));
  const std::uint64_t bytes = gradient_bytes(facts);
  if (facts.trainable.empty() || bytes == 0) return {};
  check_.buffers().name(its.reduction().gradients(),
                        fmt::format("gradient shards of unit \"{}\"", facts.name));
  const muster_range gradients = its.reduction().whole();
  MUSTER_ASSIGN_OR_RETURN(watched.spoil_gradients, spoil(gradients, bytes));
  MUSTER_ASSIGN_OR_RETURN(const muster_buffer copy, memory_.buffer(bytes));
  watched.copy = address_of({copy, 0});
  if (watched.copy == nullptr) return {};
  MUSTER_ASSIGN_OR_RETURN(watched.copy_gradients,
                          memory_.plan(muster_copy(bytes_of(gradients, bytes), bytes_of({copy, 0}, bytes))));
  return {};
}

Status WatchedUnits::release() {
  for (const Watched& watched : watched_)
    if (watched.place != nullptr) check_.open(watched.place, watched.place + watched.place_bytes);
  MUSTER_RETURN_IF_ERROR(lanes_.drain());
  MUSTER_RETURN_IF_ERROR(lanes_.close());
  return memory_.release();
}

// ---- whole parameters --------------------------------------------------------------------------

void WatchedUnits::close(std::size_t unit) {
  const Watched& watched = watched_[unit];
  check_.close(watched.place, watched.place + watched.place_bytes,
               fmt::format("unit \"{}\" is not whole: its parameters may be used between "
                           "muster_unit_forward_begin and _end, and backward_begin and _end, after `ready`",
                           set_.units[unit]->facts().name));
}

// The place is not spoilt if the fill is refused. The fill may wait for long, so it stands in no lane of the
// set; the next gather into the place comes after it.
void WatchedUnits::given_up(std::size_t unit, const shard::UnitSchedule& schedule) {
  Watched& watched = watched_[unit];
  if (watched.place == nullptr) return;
  shard::PointSet uses;
  schedule.add_uses(unit, uses);
  uses.add(watched.spoilt);
  if (Status used = check_.judge_end(watched.place, watched.place + watched.place_bytes, uses.points(),
                                     fmt::format("unit \"{}\"", set_.units[unit]->facts().name));
      !used.ok() && finding_.ok())
    finding_ = std::move(used);
  const auto spoilt = lanes_.start(watched.spoil_place, MUSTER_LANE_GATHER, uses.points());
  if (spoilt) watched.spoilt = *spoilt;
  close(unit);
}

Result<muster_point> WatchedUnits::gather(std::size_t unit, GatherFrom from,
                                          std::span<const muster_point> waits) {
  const Watched& watched = watched_[unit];
  if (watched.place == nullptr) return set_.operations.gather(unit, from, waits);
  shard::PointSet before;
  before.add(waits);
  for (const Watched& other : watched_)
    if (share_bytes(watched.place, watched.place_bytes, other.place, other.place_bytes))
      before.add(other.spoilt);
  check_.open(watched.place, watched.place + watched.place_bytes);
  return set_.operations.gather(unit, from, before.points());
}

Result<muster_point> WatchedUnits::slice(std::size_t unit, std::span<const muster_point> waits) {
  return set_.operations.slice(unit, waits);
}

// ---- gradients ---------------------------------------------------------------------------------

// Fills and copies have lanes of their own: a copy waits for a whole backward, and no other unit may wait for
// that.
Status WatchedUnits::begin_backward(std::size_t unit, std::span<muster_point, 2> ready) {
  Watched& watched = watched_[unit];
  const bool begins = !std::exchange(watched.in_backward, true);
  if (watched.spoil_gradients == 0) return {};
  shard::PointSet before;
  before.add(ready);
  if (!begins || set_.units[unit]->reduction().keeps()) {
    before.add(watched.copied);
    MUSTER_ASSIGN_OR_RETURN(ready[1], lanes_.join(MUSTER_LANE_ALLREDUCE, before.points()));
    return {};
  }
  before.add(changed_.points());  // gradients may lie where their shards do, which the optimiser reads
  MUSTER_ASSIGN_OR_RETURN(const auto spoilt,
                          lanes_.start(watched.spoil_gradients, MUSTER_LANE_ALLREDUCE, before.points()));
  ready[1] = watched.gradients_spoilt = spoilt;
  return {};
}

// Copies the whole gradients as the backward has left them; look_at_copy() checks the copy later.
Status WatchedUnits::copy(std::size_t unit, std::span<const muster_point> waits, shard::PointSet& before) {
  before.add(waits);
  Watched& watched = watched_[unit];
  watched.in_backward = false;
  const Unit& its = *set_.units[unit];
  if (watched.copy_gradients == 0 || its.reduction().keeps()) return {};
  MUSTER_RETURN_IF_ERROR(look_at_copy(unit));
  if (watched.copied != MUSTER_POINT_NONE) return {};
  before.add(watched.gradients_spoilt);  // even if no caller has waited for it
  auto copied = lanes_.start(watched.copy_gradients, MUSTER_LANE_REDUCE, before.points());
  if (!copied) return std::move(copied).error();
  watched.copied = *copied;
  before.add(*copied);
  for (const std::size_t p : its.facts().trainable)
    if (!its.reduction().is_unused(p) && its.facts().parameters[p].places.whole_elements() > 0)
      watched.looked_at.push_back(p);
  return {};
}

// A copy that still waits for a signal of this process is checked later.
Status WatchedUnits::look_at_copy(std::size_t unit) {
  Watched& watched = watched_[unit];
  if (watched.copied == MUSTER_POINT_NONE || check_.starts().is_open(watched.copied)) return {};
  const Status waited = status_of(muster_point_wait(set_.session, watched.copied, -1));
  watched.copied = MUSTER_POINT_NONE;
  const std::vector<std::size_t> looked_at = std::exchange(watched.looked_at, {});
  if (!waited.ok()) return {};  // the backward has failed, which other calls report
  const UnitFacts& facts = set_.units[unit]->facts();
  const std::size_t element = dtype_bytes(facts.reduce_dtype);
  for (const std::size_t p : looked_at) {
    const UnitFacts::Parameter& parameter = facts.parameters[p];
    const std::byte* const first = watched.copy + parameter.whole_gradient_at * element;
    const auto bytes = static_cast<std::size_t>(parameter.places.whole_elements()) * element;
    if (std::any_of(first, first + bytes, [](std::byte each) { return each != kSpoiltByte; })) continue;
    return check_.found(
        fmt::format("unit \"{}\": nobody has written the gradient of parameter \"{}\" in a backward; let a "
                    "kernel write it, or call muster_unit_unused",
                    facts.name, parameter.name));
  }
  return {};
}

Result<shard::UnitOperations::Reduced> WatchedUnits::reduce(std::size_t unit, Reduction how,
                                                            std::span<const muster_point> waits) {
  shard::PointSet before;
  MUSTER_RETURN_IF_ERROR(copy(unit, waits, before));
  return set_.operations.reduce(unit, how, before.points());
}

Result<muster_point> WatchedUnits::keep(std::size_t unit, std::span<const muster_point> waits) {
  shard::PointSet before;
  MUSTER_RETURN_IF_ERROR(copy(unit, waits, before));
  return set_.operations.keep(unit, before.points());
}

// ---- steps -------------------------------------------------------------------------------------

Status WatchedUnits::begin_step(muster_point after, bool unchanged) {
  changed_.add(after);
  for (const muster_point point : changed_.points()) {
    if (check_.starts().is_open(point)) return {};
    // The call that waits for a failed point reports it.
    if (muster_point_wait(set_.session, point, -1) != MUSTER_OK) return {};
  }
  changed_.clear();
  return unchanged ? Status() : replicas_.compare();
}

void WatchedUnits::shards_change(muster_point after) {
  changed_.add(after);
}

Status WatchedUnits::end_step() {
  for (std::size_t unit = 0; unit < watched_.size(); ++unit) MUSTER_RETURN_IF_ERROR(look_at_copy(unit));
  return check_.found(check_.buffers().check_around());
}

void WatchedUnits::reset() {
  (void)lanes_.reset();
  replicas_.expect_aborts();
  changed_.clear();
  for (Watched& watched : watched_) {
    watched.in_backward = false;
    watched.copied = watched.spoilt = watched.gradients_spoilt = MUSTER_POINT_NONE;
    watched.looked_at.clear();
  }
}

}  // namespace muster::client
