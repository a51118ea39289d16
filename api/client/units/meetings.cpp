#include "api/client/units/meetings.hpp"

#include "api/client/groups.hpp"

#include <algorithm>
#include <set>

namespace muster::client {

using Lane = UnitLanes::Lane;

void UnitMeetings::add(Lane lane, muster_group group) {
  const std::pair meeting(lane, group);
  if (group != MUSTER_GROUP_SELF && std::ranges::find(list_, meeting) == list_.end())
    list_.push_back(meeting);
}

void UnitMeetings::add(const UnitFacts& unit) {
  add(Lane::kGather, unit.shard.group);
  add(Lane::kReduce, unit.shard.group);
  if (std::ranges::any_of(unit.parameters, &UnitFacts::Parameter::summed_over_tp))
    add(Lane::kReduce, unit.tensor.group);
  // Whole gradients are summed on the one, sums on the other.
  if (unit.shard.ranks == 1) add(Lane::kReduce, unit.replicate.group);
  add(Lane::kAllReduce, unit.replicate.group);
}

Status UnitMeetings::add(muster_session* session, Lane lane, std::span<const char* const> dims) {
  for (const char* dim : dims) {
    muster_group group = MUSTER_GROUP_SELF;
    const muster_status_t code = muster_mesh_group(session, dim, &group);
    if (code == MUSTER_ERR_NOT_FOUND) continue;
    MUSTER_RETURN_IF_ERROR(status_of(code));
    add(lane, group);
  }
  return {};
}

Status UnitMeetings::meet(UnitLanes& lanes) const {
  for (const auto& [lane, group] : list_) MUSTER_RETURN_IF_ERROR(lanes.meet(lane, group));
  return {};
}

void UnitMeetings::abort(muster_session* session, const Status& why) const {
  std::set<muster_group> groups;
  for (const auto& [lane, group] : list_)
    if (groups.insert(group).second) abort_group(session, group, why.message());
}

}  // namespace muster::client
