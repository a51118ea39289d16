#include "daemon/engine/session/group_table.hpp"

#include "api/base/assert.hpp"
#include "api/base/words.hpp"
#include "api/include/muster/muster.h"

#include <algorithm>

namespace muster::engine {

namespace {

// Room for made groups. A group has at least two members, hence the half.
std::uint32_t places(const GroupTable::Sizes& sizes) {
  const std::uint32_t ranks = sizes.world.local_count();
  const std::uint32_t first = sizes.mesh_groups + ranks;
  const std::uint64_t wanted = std::uint64_t{GroupTable::kRoom} * sizes.held_max * ranks / 2;
  const std::uint64_t left = GroupTable::kGroupsMax > first ? GroupTable::kGroupsMax - first : 0;
  return static_cast<std::uint32_t>(std::min(wanted, left));
}

}  // namespace

GroupTable::GroupTable(Sizes sizes, std::uint64_t epoch)
    : sizes_(sizes), epoch_(epoch), made_(places(sizes)), traits_(size()) {
  for (std::uint32_t i = 0; i < made_.size(); ++i) free_.push_back(GroupId(first_made() + i));
}

// ---- handles -------------------------------------------------------------------------------------

// Groups of the mesh live as long as the job. A place of made groups is used again, under a new generation.
std::uint64_t GroupTable::generation_of(GroupId group) const {
  const std::uint64_t serial = is_made(group) ? entry(group).serial : 0;
  return (epoch_ + serial) & Handle::kGenerationMask;
}

std::uint64_t GroupTable::handle_of(GroupId group) const {
  if (group.value >= sizes_.mesh_groups && !is_made(group)) return MUSTER_GROUP_SELF;
  return Handle(static_cast<std::uint16_t>(group.value), generation_of(group)).bits;
}

bool GroupTable::may_use(const Entry& entry, SessionId session) {
  return std::any_of(entry.holders.begin(), entry.holders.end(),
                     [&](const Holder& holder) { return holder.session == session; });
}

Result<GroupId> GroupTable::find(std::uint64_t handle, Rank asker, SessionId session) const {
  if (handle == MUSTER_GROUP_SELF) return GroupId(sizes_.mesh_groups + sizes_.world.local(asker).value);
  const Handle h(handle);
  const GroupId group(h.slot());
  const bool of_mesh = group.value < sizes_.mesh_groups;
  const bool known = of_mesh || (is_made(group) && group.value < size() && may_use(entry(group), session));
  if (!h.valid() || !known || h.generation() != generation_of(group))
    return fail(Code::kStale, "{}; get it again with muster_mesh_group or muster_group_make",
                unknown_handle("group", handle, "freed"));
  return group;
}

// ---- made groups ---------------------------------------------------------------------------------

std::optional<GroupId> GroupTable::made(std::string_view name, std::span<const Rank> ranks) const {
  for (std::size_t i = 0; i < made_.size(); ++i) {
    const Entry& e = made_[i];
    if (e.serial != 0 && e.found == Found::kByName && e.name == name &&
        std::equal(e.ranks.begin(), e.ranks.end(), ranks.begin(), ranks.end()))
      return GroupId(first_made() + static_cast<std::uint32_t>(i));
  }
  return std::nullopt;
}

Status GroupTable::may_hold(Rank rank, SessionId session, std::uint32_t more) const {
  std::uint32_t held = 0;
  for (const Entry& e : made_) {
    const bool member = std::find(e.ranks.begin(), e.ranks.end(), rank) != e.ranks.end();
    if (member && may_use(e, session)) ++held;
  }
  if (held + more <= sizes_.held_max) return {};
  return failure(
      Code::kNoResource,
      "rank {} holds {} made groups, and {} more are above limits.groups_made_max ({}); free those "
      "that are not needed (muster_group_free, muster_mesh_free) or raise it",
      rank.value, held, more, sizes_.held_max);
}

bool GroupTable::in_transit() const {
  return std::any_of(made_.begin(), made_.end(), [&](const Entry& e) {
    std::set<SessionId> sessions;
    for (const Holder& holder : e.holders) sessions.insert(holder.session);
    return !sessions.empty() && sessions.size() < e.ranks.size();
  });
}

Result<GroupId> GroupTable::make(std::string_view name, std::span<const Rank> ranks, Found found) {
  if (free_.empty())
    return fail(Code::kBusy,
                "the job has {} made groups, some of which their other members have not made yet or not "
                "freed yet, and no room for more",
                made_.size());
  const GroupId group = free_.front();
  free_.pop_front();
  Entry& e = entry(group);
  do ++serial_;
  while (((epoch_ + serial_) & Handle::kGenerationMask) == 0);
  e.serial = serial_;
  e.name = name;
  e.found = found;
  e.ranks.assign(ranks.begin(), ranks.end());
  traits_[group.value] = {};
  return group;
}

void GroupTable::hold(GroupId group, Holder holder) {
  MUSTER_ASSERT(is_made(group) && entry(group).serial != 0);
  entry(group).holders.insert(holder);
}

bool GroupTable::holds(GroupId group, Holder holder) const {
  return is_made(group) && entry(group).holders.count(holder) > 0;
}

bool GroupTable::drop(GroupId group, Holder holder) {
  entry(group).holders.erase(holder);
  return entry(group).holders.empty();
}

std::size_t GroupTable::ways_held(GroupId group, SessionId session) const {
  const std::set<Holder>& holders = entry(group).holders;
  return static_cast<std::size_t>(std::count_if(
      holders.begin(), holders.end(), [&](const Holder& holder) { return holder.session == session; }));
}

std::vector<GroupId> GroupTable::held_by(Holder holder) const {
  std::vector<GroupId> groups = all_made();
  std::erase_if(groups, [&](GroupId group) { return !holds(group, holder); });
  return groups;
}

bool GroupTable::drop_all(GroupId group, SessionId session) {
  return std::erase_if(entry(group).holders,
                       [&](const Holder& holder) { return holder.session == session; }) > 0 &&
         entry(group).holders.empty();
}

void GroupTable::forget(GroupId group) {
  MUSTER_ASSERT(entry(group).serial != 0 && entry(group).holders.empty());
  entry(group) = Entry{};
  free_.push_back(group);
}

std::vector<GroupId> GroupTable::all_made() const {
  std::vector<GroupId> groups;
  for (std::size_t i = 0; i < made_.size(); ++i)
    if (made_[i].serial != 0) groups.push_back(GroupId(first_made() + static_cast<std::uint32_t>(i)));
  return groups;
}

}  // namespace muster::engine
