// UnitSchedule: decides when units are gathered, freed and reduced (decision D9), and starts that through
// UnitOperations. It knows no clock, no thread and no rank, so it runs in a test as well.
//
// A unit is the parameters that are gathered, used and reduced together. Its life in a step:
//
//   sharded -> whole, in forward -> sharded, or a slice, or still whole -> whole, in backward -> sharded
//                                                                              \-> gradients reduced
//
// Memory is reused by points, never by guess: a gather waits for the points after which nobody reads the
// bytes in its place. All calls of all ranks come in one order, so all ranks decide alike.
//
// Reference: torch.distributed.fsdp (FSDPParamGroup), whose rules for resharding, prefetch and accumulation
// these are.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/order.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::shard {

// Points to wait for: of each timeline the latest.
//
// Owns    its list.
// Thread  a value; any.
// Bound   one point for each timeline.
// Fails   never.
class PointSet {
 public:
  void add(muster_point point);
  void add(std::span<const muster_point> points);
  void clear() { points_.clear(); }
  std::span<const muster_point> points() const { return points_; }

 private:
  std::vector<muster_point> points_;
};

class UnitSchedule;

// The operations that carry out a schedule. Every call starts work and returns the point that it reaches;
// `waits` has one point for each timeline.
//
// Owns    everything that it needs to start work.
// Thread  the schedule's.
// Bound   its own.
// Fails   as it likes; the step is then broken.
class UnitOperations {
 public:
  // Options of a reduction of whole gradients.
  struct Reduction {
    bool add = false;          // to the gradient shard, which has gradients of this step
    bool add_partial = false;  // sums of earlier reductions without all_reduce belong to it
    bool all_reduce = true;    // false: sum among the shards only; the replicas follow with a later reduction
  };

  // The points that a reduction reaches.
  struct Reduced {
    muster_point sent =
        MUSTER_POINT_NONE;  // whole gradients may be written again. On one timeline for all units
    muster_point ready = MUSTER_POINT_NONE;  // the gradient shard may be read; NONE: there were no gradients
  };

  // The source from which a unit is gathered.
  enum class GatherFrom : std::uint8_t {
    kShards,  // as they were when it was last gathered from them
    kChangedShards,
    kSlices,
  };

  virtual ~UnitOperations() = default;
  // Brings a unit into its place.
  virtual Result<muster_point> gather(std::size_t unit, GatherFrom from,
                                      std::span<const muster_point> waits) = 0;
  // Copies this rank's slice out of the whole unit.
  virtual Result<muster_point> slice(std::size_t unit, std::span<const muster_point> waits) = 0;
  virtual Result<Reduced> reduce(std::size_t unit, Reduction how, std::span<const muster_point> waits) = 0;
  // A backward has ended whose whole gradients stay, so that later ones add to them. Returns the point after
  // which they may be written again, on the timeline of Reduced::sent; NONE: at once.
  virtual Result<muster_point> keep(std::size_t unit, std::span<const muster_point> waits) = 0;
  // The unit is whole no more. UnitSchedule::add_uses() says after which points nobody reads its place.
  virtual void given_up(std::size_t /*unit*/, const UnitSchedule& /*schedule*/) {}
};

// Owns    the states of its units.
// Thread  one.
// Bound   the units that it was made with.
// Fails   kState, naming the unit and the call that does not fit; and as its operations. After a failure the
//         step is broken: reset() begins anew.
class UnitSchedule {
 public:
  // The state of a unit after its forward.
  enum class AfterForward : std::uint8_t {
    kFree,   // it is gathered again for backward
    kKeep,   // it stays whole until its backward has ended
    kSlice,  // the ranks of a smaller group keep it between them
  };

  // A unit as the schedule knows it.
  struct Facts {
    std::string name;
    std::size_t module = 0;
    std::uint64_t bytes = 0;            // whole
    std::uint64_t slice_bytes = 0;      // kept with kSlice
    std::uint64_t offset = 0;           // its place while whole
    std::uint64_t gradient_bytes = 0;   // 0: its whole gradients have memory of their own
    std::uint64_t gradient_offset = 0;  // their place
    std::uint32_t parts = 1;  // 1 to 64: how many modules share it. Its forward ends when each has ended
    AfterForward after_forward = AfterForward::kFree;
    bool root = false;              // begins before all others in each step
    bool whole_in_backward = true;  // false: backward does not read the parameters
    bool trains = true;             // false: it has no gradients
  };

  // Options of end_backward().
  struct BackwardEnd {
    bool reduce = true;      // false: the whole gradients stay, and later kernels add to them
    bool all_reduce = true;  // false: see UnitOperations::Reduction
    bool free = true;        // false: the unit stays whole for the next microbatch
  };

  struct Counts {
    std::uint64_t whole_bytes = 0;  // of units that are whole now, and of slices
    std::uint64_t whole_bytes_peak = 0;
    std::uint64_t gathers = 0;
    std::uint64_t reductions = 0;
    std::uint64_t prefetches = 0;
    std::uint64_t prefetches_skipped = 0;  // for want of memory: the place was in use
    std::uint64_t demands = 0;             // gathers that nobody had prefetched
    std::uint64_t order_changes = 0;       // steps whose order was not that of the step before
  };

  // depth: how many modules ahead units are gathered. `operations` outlives it.
  UnitSchedule(std::vector<Facts> units, std::size_t depth, UnitOperations& operations);

  // `shards`: the point after which shards may be read, and gradient shards written. unchanged: shards are
  // those of the step before, so whole units stay whole.
  Status begin_step(muster_point shards, bool unchanged);
  // The unit's shards may be read after this point, whatever begin_step() is told next.
  void shards_change(std::size_t unit, muster_point point);

  // ready: the unit may be read after this point.
  Status begin_forward(std::size_t unit, muster_point& ready);
  // after: the last use of the unit by this part of it.
  Status end_forward(std::size_t unit, std::uint32_t part, muster_point after);
  // ready: as above, and the point after which whole gradients may be written. A forward of which some part
  // never ran ends here.
  Status begin_backward(std::size_t unit, std::span<muster_point, 2> ready);
  // reduced: the point after which the gradient shard may be read; NONE if nothing was reduced.
  Status end_backward(std::size_t unit, std::uint32_t part, muster_point after, BackwardEnd how,
                      muster_point& reduced);
  // Ends every open forward and backward, at `after`, and reduces the gradients that were kept. Unused
  // prefetches are dropped; a unit with kKeep stays whole if it had no backward. Returns the units of which
  // some part never ran. kState also if gradients wait for their replicas; the step has ended all the same.
  Result<std::vector<std::size_t>> end_step(muster_point after);

  // Replaces the prediction from the order: these units are gathered when that pass of the unit begins. An
  // empty list counts too.
  enum class Pass : std::uint8_t { kForward, kBackward };
  void set_prefetch(std::size_t unit, Pass pass, std::vector<std::size_t> units) {
    (pass == Pass::kForward ? units_[unit].forward_prefetch : units_[unit].backward_prefetch) =
        std::move(units);
  }
  // Gathers and frees outside forward and backward.
  Status unshard(std::size_t unit, muster_point& ready);
  Status reshard(std::size_t unit, muster_point after);
  void set_after_forward(std::size_t unit, AfterForward after) { units_[unit].said.after_forward = after; }

  // Forgets the step, after all that it started has ended.
  void reset();
  // A call of this step has failed outside of it: nothing but reset() may follow.
  void break_step() { broken_ = true; }
  // kState if no backward of the unit is under way.
  Status check_backward(std::size_t unit, const char* call) const;
  bool in_step() const { return in_step_; }
  bool is_whole(std::size_t unit) const { return units_[unit].state == State::kWhole; }
  // Adds the points after which nobody here reads the unit any more.
  void add_uses(std::size_t unit, PointSet& points) const;
  Counts counts() const;
  // Points after which all reductions of the step are complete, and shards are read no more.
  std::span<const muster_point> reduced() const { return reduced_.points(); }

 private:
  enum class State : std::uint8_t { kSharded, kWhole, kSliced };
  enum class Phase : std::uint8_t { kIdle, kForward, kBackward };
  struct Unit {
    Facts said;
    State state = State::kSharded;
    Phase phase = Phase::kIdle;
    bool pinned = false;           // unshard() without reshard()
    bool reduced = false;          // its gradient shard has gradients of this step
    bool partial = false;          // a reduction among the shards alone waits for the replicas
    bool holds_gradients = false;  // whole, and not reduced
    std::uint64_t ended = 0;       // a bit for each part
    std::uint64_t ran = 0;         // the parts that a forward of this step had: backward ends with them
    PointSet shards;               // after them its shards may be read
    bool changed = true;           // its shards, since it was gathered from them
    muster_point arrived = MUSTER_POINT_NONE;
    PointSet uses;  // of what lies in its place
    muster_point gradients_sent = MUSTER_POINT_NONE;
    std::vector<std::size_t> overlapping;  // units whose place shares bytes with its own
    std::vector<std::size_t> gradients_overlapping;
    std::optional<std::vector<std::size_t>> forward_prefetch;  // none: the order predicts it
    std::optional<std::vector<std::size_t>> backward_prefetch;

    // Whether its place, or that of its gradients, is free of what the others need there. kState.
    Status check_place(std::span<const Unit> all) const;
    Status check_gradient_place(std::span<const Unit> all) const;
    // Whether all of `parts` have ended now.
    bool end_part(std::uint32_t part, std::uint64_t parts);
  };

  Status check_step(const Unit& unit, const char* call) const;
  Status gather(std::size_t index);
  Status prefetch(std::span<const std::size_t> units);
  void drop(Unit& unit);
  void count(std::int64_t bytes);
  Status finish_backward(std::size_t index, BackwardEnd how, muster_point& reduced);

  std::vector<Unit> units_;
  std::size_t depth_;
  UnitOperations& operations_;
  UnitOrder order_;
  bool in_step_ = false;
  bool broken_ = false;
  std::size_t root_;
  PointSet reduced_;
  Counts counts_;
};

}  // namespace muster::shard
