#include "daemon/engine/observe/straggler_log.hpp"

namespace muster::engine {

std::vector<GroupId> StragglerLog::due(Instant now) const {
  std::vector<GroupId> groups;
  for (const auto& [group, state] : states_)
    if (state.changed && (!state.said_at || now - *state.said_at >= kPause)) groups.emplace_back(group);
  return groups;
}

bool StragglerLog::say(GroupId group, bool late, Instant now) {
  State& state = states_[group.value];
  state.changed = false;
  if (!late && !state.said_late) return false;  // a rank was late only between two lines
  state.said_late = late;
  state.said_at = now;
  return true;
}

}  // namespace muster::engine
