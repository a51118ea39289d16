// Workspace: memory in which units are whole for a while. It has two places for gathered parameters, taken in
// turn: while one unit computes, the next one is gathered into the other. It also has two places for whole
// gradients: while one unit's are reduced, the next one's are computed.
#pragma once

#include "api/examples/train_lm/program.hpp"

#include <array>
#include <span>

namespace train_lm {

// Owns    buffers as large as the largest unit; none if parameters are not sharded.
// Thread  one.
// Bound   two units gathered, two reductions under way.
// Fails   with RuntimeError, when it is made.
class Workspace {
 public:
  Workspace(Runtime& runtime, std::span<const UnitLayout> units, muster_dtype dtype);

  // One place for gathered parameters.
  struct Place {
    Buffer gathered;
    std::size_t unit = kNobody;
    Mark arrived;  // the all-gather
  };
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  Place& place(std::size_t unit) { return places_[unit % places_.size()]; }
  // Gives the unit its place; true if its parameters must be gathered because another's are there.
  bool take(std::size_t unit);
  // Begins a recording with nothing gathered and nothing under way. Each replay begins so too, because the
  // weights have changed.
  void begin();

  // One place for whole gradients.
  struct Outbox {
    Buffer gradients;
    Mark sent;  // end of the reduce-scatter that reads it
  };
  Outbox& outbox(std::size_t unit) { return outboxes_[unit % outboxes_.size()]; }

  // The peak of whole parameters in bytes.
  std::int64_t peak_unsharded_bytes() const { return peak_bytes_; }

 private:
  std::vector<std::int64_t> unit_bytes_;
  std::array<Place, 2> places_;
  std::array<Outbox, 2> outboxes_;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace train_lm
