// UnitOrder: in which order units are used. It predicts the next forward from the step before, and backward
// from this step's forward.
#pragma once

#include <cstddef>
#include <vector>

namespace muster::shard {

// The order is the same on all ranks, because all make the same calls. So are the predictions.
//
// Owns    the forwards of this step and of the step before, and each unit's forwards without a backward.
// Thread  one.
// Bound   one entry for each forward of a step.
// Fails   never.
class UnitOrder {
 public:
  // modules: by unit. Units of one module are used together.
  explicit UnitOrder(std::vector<std::size_t> modules);

  void begin_step();
  bool is_first() const { return begun_.empty(); }  // no forward has begun in this step

  // A unit's forward begins.
  void begin(std::size_t unit);
  // The units that are expected next, up to `depth` modules further on. None in the first step, and none in
  // the rest of a step whose order has changed.
  std::vector<std::size_t> next(std::size_t depth) const;
  // A unit's forward has ended; several forwards of a unit may wait for their backward.
  void end(std::size_t unit);

  // A forward of the unit has ended in this step.
  bool can_go_back(std::size_t unit) const;
  // The backward of the unit's latest forward begins. Returns the units whose forward ended before that one,
  // up to `depth` modules back. A forward that has had its backward is left out if its unit has had a later
  // forward: it belongs to an earlier microbatch. Returns none if this unit's forwards have all had a
  // backward. can_go_back(unit) holds.
  std::vector<std::size_t> go_back(std::size_t unit, std::size_t depth);

  // Steps whose order was not that of the step before.
  std::size_t changes() const { return changes_; }

 private:
  std::vector<std::size_t> modules_;
  std::vector<std::size_t> before_;  // forwards of the step before
  std::vector<std::size_t> begun_;   // of this step
  struct Ended {
    std::size_t unit = 0;
    bool gone_back = false;
  };
  std::vector<Ended> ended_;                       // forwards, in their order
  std::vector<std::vector<std::size_t>> ends_of_;  // by unit: indexes in ended_
  std::vector<std::size_t> latest_;                // by unit: of its last forward there
  bool follows_ = false;
  std::size_t changes_ = 0;
};

}  // namespace muster::shard
