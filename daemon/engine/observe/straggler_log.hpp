// StragglerLog: decides when the log may report a group's late ranks. On a busy machine flags change all the
// time, and a log full of them is of no use.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace muster::engine {

// Owns    the time of each group's latest report, and whether any rank was late then.
// Thread  under the engine's lock.
// Bound   an entry for each group whose flags have changed.
// Fails   never.
class StragglerLog {
 public:
  // At most one line for each group in this time.
  static constexpr Nanos kPause = std::chrono::minutes(1);

  // A flag of the group has changed.
  void changed(GroupId group) { states_[group.value].changed = true; }
  void forget(GroupId group) { states_.erase(group.value); }
  // Groups whose flags have changed since their last line, and that may have another line.
  std::vector<GroupId> due(Instant now) const;
  // Whether a line is worth it; `late`: a member is late now. If true, the line counts as logged.
  bool say(GroupId group, bool late, Instant now);

 private:
  struct State {
    bool changed = false;
    bool said_late = false;
    std::optional<Instant> said_at;
  };
  std::map<std::uint32_t, State> states_;
};

}  // namespace muster::engine
