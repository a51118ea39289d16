// Measure: the one way in which anything is timed on several ranks at once.
#pragma once

#include "tests/bench/cells.hpp"

#include <functional>

namespace muster::bench {

// Seconds on a clock that all processes of the machine share.
double now();

// A sample is a barrier, then `run` several times; it counts the slowest rank's time for one. How often
// follows from a first look and the effort.
//
// Owns    what a barrier and an agreement cost, so that they can be reckoned with.
// Thread  one on each rank; all ranks make the same calls.
// Bound   the effort's limit, but for a single operation that needs longer.
// Fails   never.
class Measure {
 public:
  Measure(Contender& contender, const Effort& effort);

  // One sample, in seconds; equal on all ranks, and so is all that is concluded from it.
  double once(const std::function<void()>& run, int runs = 1);
  // Median and minimum. `times` is how often the operation takes place in one run; `first`, if it is known,
  // is what a sample of it needed before: beyond the limit that is the only one.
  Timing timing(const std::function<void()>& run, int times = 1, double first = 0.0);
  // `before` is done ahead of each sample and not timed.
  Timing timing_of_first(const std::function<void()>& before, const std::function<void()>& run);

 private:
  int samples_within(double left, double each) const;

  Contender& contender_;
  Effort effort_;
  double meeting_ = 0.0;
};

}  // namespace muster::bench
