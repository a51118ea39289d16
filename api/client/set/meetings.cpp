#include "api/client/set/meetings.hpp"

#include "api/client/groups.hpp"

#include <algorithm>
#include <set>

namespace muster::client {

void SetMeetings::add(muster_lane lane, muster_group group) {
  const std::pair meeting(lane, group);
  if (group != MUSTER_GROUP_SELF && std::ranges::find(list_, meeting) == list_.end())
    list_.push_back(meeting);
}

Status SetMeetings::add(muster_session* session, muster_lane lane, std::span<const char* const> dims) {
  for (const char* dim : dims) {
    muster_group group = MUSTER_GROUP_SELF;
    const muster_status_t code = muster_mesh_group(session, dim, &group);
    if (code == MUSTER_ERR_NOT_FOUND) continue;
    MUSTER_RETURN_IF_ERROR(status_of(code));
    add(lane, group);
  }
  return {};
}

Status SetMeetings::meet(SetLanes& lanes) const {
  for (const auto& [lane, group] : list_) MUSTER_RETURN_IF_ERROR(lanes.meet(lane, group));
  return {};
}

void SetMeetings::abort(muster_session* session, const Status& why) const {
  std::set<muster_group> groups;
  for (const auto& [lane, group] : list_)
    if (groups.insert(group).second) abort_group(session, group, why.message());
}

}  // namespace muster::client
