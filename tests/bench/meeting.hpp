// Meeting: the cheapest way in which processes on this machine can learn of each other.
#pragma once

#include <map>
#include <vector>

namespace muster::bench {

// Where there are cores for all, a line of the cache goes from one to another. Where several share a core,
// each must get it once: they give it away to one another.
//
// Owns    what it has measured so far.
// Thread  one; it starts processes to measure, so nothing else may run in this one meanwhile.
// Bound   one figure for each number of ranks on a core.
// Fails   never; a figure of a busy machine is too slow, so the best of several looks is kept.
class Meeting {
 public:
  Meeting();

  // All of `ranks` have arrived, and all know it.
  double seconds(int ranks);
  // From a store by one core to its sight on another; 0 where there is one core.
  double line_seconds();
  // From a wake by one core to the return of who slept on another; the sleep is long.
  double wake_seconds();

  int cores() const { return static_cast<int>(cores_.size()); }

 private:
  double switch_seconds(int processes);

  std::vector<int> cores_;
  std::map<int, double> switches_;
  double line_ = 0.0;
  double wake_ = 0.0;
};

}  // namespace muster::bench
