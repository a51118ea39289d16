// Absences: which ranks are not there and will not come, and why.
#pragma once

#include "api/base/ids.hpp"
#include "scheduler/run/cause.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::scheduler {

// Owns    what the launcher has said of each rank, and because of whom each one left.
// Thread  one.
// Bound   the ranks given.
// Fails   never.
class Absences {
 public:
  explicit Absences(std::uint32_t ranks) : ranks_(ranks) {}

  // The rank has a client: whatever was said of it is void.
  void attached(Rank rank);
  // The client has left. `because`: the fault of another rank, because of which it did; may be nullptr. Once
  // nobody is there any more, nothing stands against anybody.
  void left(Rank rank, const CausePtr& because);
  // The launcher has said that the rank will not come, or not come back once it has left.
  void add(Rank rank, CausePtr cause);
  // It has said so before.
  bool known(Rank rank) const { return ranks_[rank.value].absence != nullptr; }
  // What those hear who need the rank: `text`, or the fault because of which it left.
  Cause reason(Rank rank, const std::string& text) const;
  // All ranks may come again. What made them leave was of the run that is over.
  void expect_all();

  // Why the rank is not there and will not come; nullptr otherwise.
  CausePtr of(Rank rank) const;
  // The earliest fault for which one of them will not come; nullptr: all may come.
  CausePtr first_of(std::span<const Rank> ranks) const;

 private:
  struct State {
    bool attached = false;
    CausePtr left_by;
    CausePtr absence;  // counts while the rank is not attached
  };
  void forget();

  std::vector<State> ranks_;
  std::uint32_t known_ = 0;
};

}  // namespace muster::scheduler
