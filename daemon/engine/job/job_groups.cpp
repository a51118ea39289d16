#include "daemon/engine/job/job_groups.hpp"

#include "api/base/words.hpp"
#include "api/shm/message.hpp"
#include "daemon/engine/session/group_span.hpp"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::engine {
namespace {

constexpr char kSurvivors[] = "survivors";

// The group's name in reports: "ranks 0 2-4" if its makers gave none.
std::string shown_name(std::string_view name, std::span<const Rank> ranks) {
  if (!name.empty()) return std::string(name);
  std::vector<std::uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value);
  const std::string text = fmt::format("ranks {}", rank_list(numbers));
  if (text.size() < shm::kNameBytes) return text;
  return fmt::format("{}...", text.substr(0, shm::kNameBytes - sizeof "..."));
}

// The key of a made group with members on several nodes. Each node makes it alone, from the same facts.
std::uint64_t key_of(std::string_view identity, std::span<const Rank> ranks) {
  constexpr std::uint64_t kMade = std::uint64_t{1} << 63;
  const std::uint64_t of_ranks = XXH3_64bits(ranks.data(), ranks.size_bytes());
  return XXH3_64bits_withSeed(identity.data(), identity.size(), of_ranks) | kMade;
}

}  // namespace

Result<mesh::GroupList> group_list(std::string_view text, std::uint32_t world, const control::JobSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(const mesh::Degrees degrees, mesh::Degrees::parse(text));
  std::vector<mesh::Mesh::Flatten> flattens;
  for (const auto& [name, dims] : spec.flatten) flattens.push_back({name, dims});
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh whole, mesh::Mesh::build(degrees, world, flattens));
  return mesh::GroupList(whole);
}

Result<JobGroups::Plan> JobGroups::plan(const control::JobSpec& spec, bool spans) {
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList list, group_list(spec.mesh, spec.world.size(), spec));
  GroupTable table({static_cast<std::uint32_t>(list.size()), spec.world, spec.groups_made_max}, spec.epoch);
  if (table.first_made() > GroupTable::kGroupsMax)
    return fail(Code::kNoResource, "mesh {} of {} ranks has {} groups; with single ranks more than {}",
                spec.mesh, spec.world.size(), list.size(), GroupTable::kGroupsMax);
  std::vector<scheduler::Group> groups;
  for (std::uint32_t g = 0; g < list.size(); ++g) {
    const mesh::GroupList::Group group = list.group(GroupId(g));
    scheduler::Group& known = groups.emplace_back(scheduler::Group{std::string(group.name), {}});
    // A group without ranks of this node stays without members here.
    if (spec.world.any_local(group.ranks)) known.ranks.assign(group.ranks.begin(), group.ranks.end());
    if (spans && !spec.world.are_local(group.ranks)) known.key = g + 1;
  }
  for (const Rank rank : spec.world.locals()) groups.push_back({"self", {rank}});
  groups.resize(table.size());
  return Plan{std::move(list), std::move(table), std::move(groups)};
}

JobGroups::JobGroups(GroupTable table, const Parts& parts)
    : table_(std::move(table)),
      shrinks_({parts.spec, parts.clock, parts.graph, parts.slots, table_, parts.faults, parts.other_nodes,
                [this](std::span<const Rank> ranks, const std::string& identity) {
                  return enter(kSurvivors, ranks, GroupTable::Found::kOtherwise, identity);
                },
                [this](GroupId group) {
                  SessionBuffers::Gone none;  // no session has used it
                  retire(group, none);
                }}),
      messages_(parts.other_nodes.links()),
      parts_(parts) {
  using Bytes = std::span<const std::byte>;
  messages_.set_reader(NodeMessageKind::kPresence,
                       [this](NodeIndex from, std::uint32_t generation, Bytes message) {
                         parts_.elsewhere.hear(from, generation, message);
                       });
  for (const NodeMessageKind kind : {NodeMessageKind::kQuestion, NodeMessageKind::kAnswer})
    messages_.set_reader(kind, [this](NodeIndex from, std::uint32_t, Bytes message) {
      parts_.other_nodes.control_fence().hear(from, message);
    });
  messages_.set_reader(NodeMessageKind::kMissing, [this](NodeIndex from, std::uint32_t, Bytes message) {
    parts_.missing.hear(from, message);
  });
  messages_.set_reader(NodeMessageKind::kAgreement,
                       [this](NodeIndex from, std::uint32_t generation, Bytes message) {
                         shrinks_.take(from, generation, message);
                       });
}

void JobGroups::left(Rank rank, SessionId session, SessionId next) {
  for (std::uint32_t g = 0; g < parts_.graph.groups().size(); ++g) {
    const auto& members = parts_.graph.groups()[g].ranks;
    if (std::find(members.begin(), members.end(), rank) != members.end()) shrinks_.lost(GroupId(g), next);
  }
  shrinks_.left(session);
}

void JobGroups::lost_elsewhere(GroupId group, SessionId next) {
  shrinks_.lost(group, next);
}

// ---- made groups -----------------------------------------------------------------------------------

// No room for a group. BUSY while other members are about to make or free their groups, so that the client
// asks again.
Status JobGroups::no_room(const Status& why) const {
  if (why.code() != Code::kBusy) return why;
  return failure(
      table_.in_transit() ? Code::kBusy : Code::kNoResource,
      "{}; free groups (muster_group_free, muster_mesh_free), or raise limits.groups_made_max ({})",
      why.message(), parts_.spec.groups_made_max);
}

// Under the lock. Enters the group with its communicator and member regions; on failure nothing changes.
Result<GroupId> JobGroups::enter(std::string_view name, std::span<const Rank> ranks, GroupTable::Found found,
                                 const std::string& identity) {
  scheduler::Group made{shown_name(name, ranks), {ranks.begin(), ranks.end()}};
  if (parts_.spans && !parts_.spec.world.are_local(ranks)) made.key = key_of(identity, ranks);
  MUSTER_RETURN_IF_ERROR(check_reach(parts_.spec.world, made));
  MUSTER_ASSIGN_OR_RETURN(auto communicator, open_communicator(made, parts_.devices, parts_.factories));
  made.first_epoch = communicator->first_epoch();
  const auto entered = table_.make(name, ranks, found);
  if (!entered) return fail(no_room(entered.error()));
  const GroupId group = *entered;
  if (parts_.direct_pages != nullptr) {
    const Status added = parts_.direct_pages->add_group(group, ranks);
    if (!added.ok()) {
      table_.forget(group);
      return fail(no_room(added));
    }
  }
  parts_.executor.connect(group, std::move(communicator));
  parts_.graph.open_lanes().set_group(group, std::move(made));
  parts_.metrics.set_group(group);
  return group;
}

// Under the lock.
void JobGroups::retire(GroupId group, SessionBuffers::Gone& gone) {
  NamedMemory& named = parts_.buffers.named();
  const NameScope names{NameScope::Kind::kGroup, group.value};
  if (table_.is_held(group)) return;
  // A group that is not found by its name could not be found again, nor could its memory.
  if (!table_.is_found_by_name(group)) named.forget_all_in(names, gone);
  if (named.any_in(names)) return;
  shrinks_.forget(group);
  parts_.graph.open_lanes().set_group(
      group, {parts_.graph.groups()[group.value].name, {}});  // a recording may still show it
  parts_.executor.connect(group, nullptr);
  if (parts_.direct_pages != nullptr) parts_.direct_pages->remove_group(group);
  parts_.metrics.forget_group(group);
  table_.forget(group);
}

Result<std::uint64_t> JobGroups::make(Session& session, std::string_view name,
                                      std::span<const std::int32_t> said) {
  const Rank self = session.options().rank;
  std::vector<Rank> ranks;
  const std::uint32_t world = parts_.spec.world.size();
  std::vector<bool> seen(world);
  for (const std::int32_t rank : said) {
    if (rank < 0 || static_cast<std::uint32_t>(rank) >= world)
      return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", rank, world - 1, parts_.spec.name);
    if (seen[static_cast<std::size_t>(rank)])
      return fail(Code::kBadArgument, "rank {} stands twice in the list of the group's members", rank);
    seen[static_cast<std::size_t>(rank)] = true;
    ranks.push_back(Rank(static_cast<std::uint32_t>(rank)));
  }
  if (!seen[self.value])
    return fail(Code::kBadArgument, "rank {} makes a group of which it is no member", self.value);
  if (ranks.size() == 1) return MUSTER_GROUP_SELF;
  const std::lock_guard lock(parts_.lock);
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, hold_by_name(session, name, ranks, {}));
  return table_.handle_of(group);
}

// Under the lock.
void JobGroups::drop(GroupId group, const Holder& holder, SessionBuffers::Gone& gone) {
  if (table_.drop(group, holder)) retire(group, gone);
}

void JobGroups::release(SessionId session, SessionBuffers::Gone& gone) {
  for (const GroupId group : table_.all_made())
    if (table_.drop_all(group, session)) retire(group, gone);
}

// Under the lock.
Result<GroupId> JobGroups::hold_by_name(const Session& session, std::string_view name,
                                        std::span<const Rank> ranks, std::optional<std::uint64_t> mesh) {
  const Holder holder{session.options().id, mesh};
  std::optional<GroupId> group = table_.made(name, ranks);
  if (group && table_.holds(*group, holder)) return *group;
  if (!group || table_.ways_held(*group, holder.session) == 0)
    MUSTER_RETURN_IF_ERROR(table_.may_hold(session.options().rank, holder.session, 1));
  if (!group) {
    MUSTER_ASSIGN_OR_RETURN(group,
                            enter(name, ranks, GroupTable::Found::kByName, fmt::format("named {}", name)));
  }
  table_.hold(*group, holder);
  parts_.faults.refresh_absences();
  return *group;
}

Result<std::uint64_t> JobGroups::shrink(Session& session, std::uint64_t handle, bool gives_up) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId of, find_group(session.scope(parts_.graph.groups()), handle));
  if (parts_.graph.groups()[of.value].spans()) static_cast<void>(progress());
  const std::lock_guard lock(parts_.lock);
  return shrinks_.shrink(session, of, gives_up);
}

bool JobGroups::progress() {
  if (!parts_.spans) return false;
  {
    const std::lock_guard lock(parts_.lock);
    if (messages_.take()[static_cast<std::size_t>(NodeMessageKind::kPresence)] > 0) {
      parts_.other_nodes.hear(parts_.clock.now());  // ends that were sent before
      parts_.faults.begin_run_if_empty();
    }
    parts_.missing.tell(parts_.clock.now());
    parts_.other_nodes.control_fence().answer();
  }
  parts_.other_nodes.look();
  const std::lock_guard lock(parts_.lock);
  parts_.elsewhere.look(parts_.other_nodes);
  shrinks_.work();
  return shrinks_.is_open() || parts_.other_nodes.control_fence().is_open();
}

Status JobGroups::free(Session& session, std::uint64_t handle) {
  if (handle == MUSTER_GROUP_SELF) return {};
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, find_group(session.scope(parts_.graph.groups()), handle));
  SessionBuffers::Gone gone;  // outlives the lock
  const std::lock_guard lock(parts_.lock);
  const std::string& name = parts_.graph.groups()[group.value].name;
  const SessionId owner = session.options().id;
  if (!table_.holds(group, {owner, {}}) || table_.ways_held(group, owner) > 1)
    return failure(Code::kBadArgument, "group {} belongs to a mesh and goes with it", name);
  parts_.slots.drain_all(session.options().rank);
  if (const std::size_t uses = session.uses(group); uses > 0)
    return failure(Code::kBusy,
                   "{} plans and shared buffers of this session use group {}; destroy them first", uses,
                   name);
  drop(group, {owner, {}}, gone);
  return {};
}

// A rank set has many names. Its users know the first for which one of them asks.
void JobGroups::name(GroupId group, std::string_view name) {
  const std::lock_guard lock(parts_.lock);
  if (!table_.ask_for(group)) return;
  if (parts_.graph.groups()[group.value].name == name) return;
  scheduler::Group named = parts_.graph.groups()[group.value];
  named.name = name;
  parts_.graph.open_lanes().set_group(group, std::move(named));
  parts_.metrics.name_group(group, name);
}

Result<std::vector<std::int32_t>> JobGroups::group_ranks(const Session& session, std::uint64_t group,
                                                         shm::GroupAnswer* answer) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(session.scope(parts_.graph.groups()), group));
  const scheduler::Group& found = parts_.graph.groups()[id.value];
  std::vector<std::int32_t> ranks;
  answer->rank = -1;
  for (const Rank rank : found.ranks) {
    if (rank == session.options().rank) answer->rank = static_cast<std::int32_t>(ranks.size());
    ranks.push_back(static_cast<std::int32_t>(rank.value));
  }
  answer->ranks = static_cast<std::int32_t>(ranks.size());
  answer->deadline_ns = table_.deadline(id).count();
  answer->spans = parts_.spec.world.are_local(found.ranks) ? 0 : 1;
  found.name.copy(answer->name, sizeof answer->name - 1);
  return ranks;
}

std::vector<scheduler::Group> JobGroups::made() const {
  std::vector<scheduler::Group> groups;
  for (const GroupId group : table_.all_made()) groups.push_back(parts_.graph.groups()[group.value]);
  return groups;
}

}  // namespace muster::engine
