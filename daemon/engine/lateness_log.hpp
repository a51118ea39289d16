// LatenessLog: when the log may speak of a group's late-comers. On a busy machine flags change all the time,
// and a log of nothing else is read by nobody.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace muster::engine {

// Owns    when each group was last spoken of, and whether anybody was late then.
// Thread  under the engine's lock.
// Bound   an entry for each group whose flags have changed.
// Fails   never.
class LatenessLog {
 public:
  // For each group one line in so long a time.
  static constexpr Nanos kPause = std::chrono::minutes(1);

  // A flag of the group has changed.
  void changed(GroupId group) { states_[group.value].changed = true; }
  void forget(GroupId group) { states_.erase(group.value); }
  // Groups that have changed since their last line, and may have another.
  std::vector<GroupId> due(Instant now) const;
  // Whether a line is worth it, now that `late` members are late; it is then taken as said.
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
