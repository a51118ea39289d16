// Absences: which ranks have no client and will not get one, and why.
#pragma once

#include "api/base/world.hpp"
#include "scheduler/run/cause.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace muster::scheduler {

// Owns    the launcher's report on each rank of this node, and the fault because of which each has left.
// Thread  one.
// Bound   the ranks of this node.
// Fails   never.
class Absences {
 public:
  explicit Absences(const World& world) : ranks_(world) {}

  // The rank has a client now: its absence and its reason for leaving are forgotten. Returns whether it is
  // the rank's first in this run.
  bool attached(Rank rank);
  // The client has left. `because`: the fault that made it leave; nullptr: none. When the last client has
  // left, all absences are forgotten.
  void left(Rank rank, const CausePtr& because);
  // The launcher has reported that the rank will not come, or will not come back once it has left.
  void add(Rank rank, CausePtr cause);
  // Whether add() was called and the absence is not forgotten.
  bool known(Rank rank) const { return ranks_[rank].absence != nullptr; }
  // The cause for operations that need the rank: the fault that made it leave, or else `text`.
  Cause reason(Rank rank, const std::string& text) const;
  // A new run begins: all ranks may come again, and the faults of the old run are forgotten.
  void expect_all();

  // Why the rank has no client and will not get one; nullptr: it has one, or may get one.
  CausePtr of(Rank rank) const;
  // No rank of this node has a client.
  bool nobody() const;
  // The job has no rank at all: a new run begins.
  void begin_run();
  // The earliest fault because of which one of `ranks` will not come; nullptr: all may come.
  CausePtr first_of(std::span<const Rank> ranks) const;

 private:
  struct State {
    bool attached = false;
    bool came = false;  // in this run
    CausePtr left_by;
    CausePtr absence;  // counts while the rank is not attached
  };
  void forget();

  RankTable<State> ranks_;
  std::uint32_t known_ = 0;
};

}  // namespace muster::scheduler
