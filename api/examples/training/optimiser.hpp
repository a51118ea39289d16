// Optimiser: AdamW over all units of a model, with clipped gradients and a schedule that the host writes.
#pragma once

#include "api/examples/training/units.hpp"

#include <cstdint>
#include <span>

namespace training {

// How the learning rate goes with the steps: linearly up, then down to a tenth along a cosine.
double learning_rate_multiplier(std::int64_t step, std::int64_t steps, std::int64_t warmup);

// Owns    its state in the device's memory, and the recorded update.
// Thread  one.
// Bound   fixed.
// Fails   with RuntimeError.
class Optimiser {
 public:
  Optimiser(Runtime& runtime, Units& units);

  // Once, when the units have places. clip: largest norm of the gradient; 0: no limit.
  void record(double learning_rate, double clip);
  // F32 [2]: what the learning rate is multiplied by, and the number of the step, from 1 on. A step writes
  // them.
  muster_tensor schedule() const { return floats(0, 2); }
  muster_tensor gradient_norm() const { return floats(3, 1); }  // F32 [1], before clipping
  // After the units' step has ended. Returns the point from which on weights may be read.
  muster_point update(muster_point after);

 private:
  muster_tensor floats(std::int64_t first, std::int64_t count) const {
    return muster_view1(state_.handle, static_cast<std::uint64_t>(first) * sizeof(float), MUSTER_F32, count);
  }
  muster_tensor square_sum() const { return muster_view1(square_sum_.handle, 0, MUSTER_F64, 1); }

  Units& units_;
  Buffer state_;  // F32 {multiplier, step, clip coefficient, gradient norm}: AdamW reads three
  Buffer square_sum_;
  Program program_;
};

}  // namespace training
