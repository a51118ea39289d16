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
constexpr std::uint64_t kNoMeshHandle = UINT64_MAX;
Status no_such_mesh(std::uint64_t mesh) {
  return failure(Code::kStale, "{}; make it with muster_mesh_make or muster_mesh_slice",
                 unknown_handle("mesh", mesh, "freed"));
}

Result<mesh::GroupList> plan_groups(std::string_view text, std::uint32_t world,
                                    const control::JobSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(const mesh::Degrees degrees, mesh::Degrees::parse(text));
  std::vector<mesh::Flatten> flattens;
  for (const auto& [name, dims] : spec.flatten) flattens.push_back({name, dims});
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh whole, mesh::Mesh::build(degrees, world, flattens));
  return mesh::GroupList(whole);
}

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

Result<JobGroups::Plan> JobGroups::plan(const control::JobSpec& spec, bool spans) {
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList list, plan_groups(spec.mesh, spec.world.size(), spec));
  GroupTable table({static_cast<std::uint32_t>(list.size()), spec.world, spec.groups_made_max}, spec.epoch);
  if (table.first_made() > GroupTable::kGroupsMax)
    return fail(Code::kNoResource, "mesh {} of {} ranks has {} groups; with single ranks more than {}",
                spec.mesh, spec.world.size(), list.size(), GroupTable::kGroupsMax);
  std::vector<scheduler::Group> groups;
  for (std::uint32_t g = 0; g < list.size(); ++g) {
    const mesh::MeshGroup group = list.group(GroupId(g));
    scheduler::Group& known = groups.emplace_back(scheduler::Group{std::string(group.name), {}});
    // A group without ranks of this node stays without members here.
    if (spec.world.any_local(group.ranks)) known.ranks.assign(group.ranks.begin(), group.ranks.end());
    if (spans && !spec.world.are_local(group.ranks)) known.key = g + 1;
  }
  for (const Rank rank : spec.world.locals()) groups.push_back({"self", {rank}});
  groups.resize(table.size());
  return Plan{std::move(list), std::move(table), std::move(groups)};
}

JobGroups::JobGroups(mesh::GroupList list, GroupTable table, const Parts& parts)
    : list_(std::move(list)),
      table_(std::move(table)),
      shrinks_({parts.spec, parts.clock, parts.graph, parts.slots, table_, parts.faults, parts.other_nodes,
                [this](std::span<const Rank> ranks, const std::string& identity) {
                  return enter(kSurvivors, ranks, GroupTable::Found::kOtherwise, identity);
                },
                [this](GroupId group) {
                  SessionBuffers::Gone none;  // no session has used it
                  retire(group, none);
                }}),
      messages_(parts.other_nodes.links()),
      parts_(parts),
      asked_for_(table_.size()) {
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
  asked_for_[group.value] = false;
  parts_.graph.set_group(group, std::move(made));
  parts_.metrics.set_group(group);
  return group;
}

// Under the lock. Removes a group without a holder, so no plan and no start of it is left. If its members
// share memory by name, that memory and the group stay.
void JobGroups::retire(GroupId group, SessionBuffers::Gone& gone) {
  NamedMemory& named = parts_.buffers.named();
  const NameScope names{NameScope::Kind::kGroup, group.value};
  if (table_.is_held(group)) return;
  // A group that is not found by its name could not be found again, nor could its memory.
  if (!table_.is_found_by_name(group)) named.forget_all_in(names, gone);
  if (named.any_in(names)) return;
  shrinks_.forget(group);
  parts_.graph.set_group(group,
                         {parts_.graph.groups()[group.value].name, {}});  // a recording may still show it
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
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, hold_by_name(session, name, ranks));
  return table_.handle_of(group);
}

// Under the lock.
Result<GroupId> JobGroups::hold_by_name(const Session& session, std::string_view name,
                                        std::span<const Rank> ranks) {
  const Holder holder = Holder::of(session.options().id);
  std::optional<GroupId> group = table_.made(name, ranks);
  if (group && table_.holds(*group, holder)) return *group;
  MUSTER_RETURN_IF_ERROR(table_.may_hold(session.options().rank, session.options().id, 1));
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
  if (!table_.holds(group, Holder::of(owner)) || is_flattened(owner, group, kNoMeshHandle))
    return failure(Code::kBadArgument, "group {} belongs to a mesh and goes with it", name);
  parts_.slots.drain_all(session.options().rank);
  if (const std::size_t uses = session.uses(group); uses > 0)
    return failure(Code::kBusy,
                   "{} plans and shared buffers of this session use group {}; destroy them first", uses,
                   name);
  if (table_.drop(group, Holder::of(session.options().id))) retire(group, gone);
  return {};
}

// ---- made meshes -----------------------------------------------------------------------------------

Result<std::uint64_t> JobGroups::make_mesh(Session& session, std::uint64_t over, std::string_view text) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, find_group(session.scope(parts_.graph.groups()), over));
  const scheduler::Group& whole = parts_.graph.groups()[group.value];
  const Rank self = session.options().rank;
  const auto at = std::find(whole.ranks.begin(), whole.ranks.end(), self);
  if (at == whole.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", self.value, whole.name);
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList list,
                          plan_groups(text, static_cast<std::uint32_t>(whole.ranks.size()), parts_.spec));
  // MUSTER_GROUP_SELF is one handle for all ranks, so each rank needs its own key.
  const std::uint64_t key = over == MUSTER_GROUP_SELF ? MUSTER_GROUP_SELF - 1 - self.value : over;
  const std::lock_guard lock(parts_.lock);
  const SessionId asker = session.options().id;
  MadeMesh* mesh = table_.mesh_over(key, list.mesh().degrees().canonical());
  if (mesh != nullptr && mesh->sessions.count(asker) > 0) return mesh->handle;
  const auto in_mesh = Rank(static_cast<std::uint32_t>(at - whole.ranks.begin()));
  const auto mine = static_cast<std::uint32_t>(list.count_of(in_mesh));
  MUSTER_RETURN_IF_ERROR(table_.may_hold(self, asker, mine));
  if (mesh == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(mesh, enter_mesh(key, std::move(list), scheduler::Group(whole)));
  }
  mesh->sessions.insert(asker);
  parts_.faults.refresh_absences();
  return mesh->handle;
}

// Enters all groups of the mesh, or none.
Result<MadeMesh*> JobGroups::enter_mesh(std::uint64_t over, mesh::GroupList list,
                                        const scheduler::Group& whole) {
  const std::vector<Rank>& ranks = whole.ranks;
  const std::string degrees = list.mesh().degrees().canonical();
  MadeMesh& mesh = table_.add_mesh({0, over, degrees, std::move(list), {ranks.begin(), ranks.end()}, {}, {}});
  for (std::uint32_t g = 0; g < mesh.list.size(); ++g) {
    const mesh::MeshGroup wanted = mesh.list.group(GroupId(g));
    std::vector<Rank> members;
    for (const Rank rank : wanted.ranks) members.push_back(ranks[rank.value]);
    const auto group = enter(wanted.name, members, GroupTable::Found::kOtherwise,
                             fmt::format("{} of mesh {} over {}", g, degrees, whole.key));
    if (!group) {
      SessionBuffers::Gone none;  // new groups have no memory
      leave_mesh(mesh, none);
      return fail(group.error());
    }
    table_.hold(*group, {Holder::Kind::kMesh, mesh.handle});
    mesh.groups.push_back(*group);
  }
  return &mesh;
}

void JobGroups::leave_mesh(MadeMesh& mesh, SessionBuffers::Gone& gone) {
  const Holder holder{Holder::Kind::kMesh, mesh.handle};
  for (const GroupId group : mesh.groups)
    if (table_.drop(group, holder)) retire(group, gone);
  table_.forget_mesh(mesh.handle);
}

Status JobGroups::free_mesh(Session& session, std::uint64_t handle) {
  SessionBuffers::Gone gone;  // outlives the lock
  const SessionId owner = session.options().id;
  const std::lock_guard lock(parts_.lock);
  for (auto& [of, added] : added_[owner])
    if (added.slices.erase(handle) > 0) return {};
  MadeMesh* mesh = table_.mesh(handle);
  if (mesh == nullptr || mesh->sessions.count(owner) == 0) return no_such_mesh(handle);
  parts_.slots.drain_all(session.options().rank);
  std::vector<GroupId> named = flattened(owner, handle);
  std::erase_if(named, [&](GroupId group) { return is_flattened(owner, group, handle); });
  std::size_t uses = 0;
  for (const GroupId group : mesh->groups) uses += session.uses(group);
  for (const GroupId group : named) uses += session.uses(group);
  if (uses > 0)
    return failure(
        Code::kBusy,
        "{} plans and shared buffers of this session use groups of the mesh {}; destroy them first", uses,
        mesh->degrees);
  for (const GroupId group : named)
    if (table_.drop(group, Holder::of(owner))) retire(group, gone);
  added_[owner].erase(handle);
  mesh->sessions.erase(owner);
  if (mesh->sessions.empty()) leave_mesh(*mesh, gone);
  return {};
}

// Drops the groups and meshes that an ended session held, once none of its work runs any more.
void JobGroups::release(SessionId session, SessionBuffers::Gone& gone) {
  for (const std::uint64_t handle : table_.meshes_of(session)) {
    MadeMesh& mesh = *table_.mesh(handle);
    mesh.sessions.erase(session);
    if (mesh.sessions.empty()) leave_mesh(mesh, gone);
  }
  for (const GroupId group : table_.all_made())
    if (table_.drop(group, Holder::of(session))) retire(group, gone);
  added_.erase(session);
}

// ---- additions of sessions to a mesh -----------------------------------------------------------------

Result<JobGroups::SeenMesh> JobGroups::see(const Session& session, std::uint64_t handle) {
  const Rank self = session.options().rank;
  SeenMesh seen{list_, nullptr, nullptr, std::nullopt, self, handle};
  const auto mine = added_.find(session.options().id);
  if (mine != added_.end()) {
    for (auto& [of, added] : mine->second) {
      const auto slice = added.slices.find(handle);
      if (of != handle && slice == added.slices.end()) continue;
      seen.added = &added;
      seen.handle = of;
      if (slice != added.slices.end()) seen.slice = slice->second;
    }
  }
  if (seen.handle == MUSTER_MESH_JOB) return seen;
  MadeMesh* const made = table_.mesh(seen.handle);
  if (made == nullptr || made->sessions.count(session.options().id) == 0)
    return fail(no_such_mesh(seen.handle));
  const auto at = std::find(made->ranks.begin(), made->ranks.end(), self);
  return SeenMesh{
      made->list, made, seen.added, seen.slice, Rank(static_cast<std::uint32_t>(at - made->ranks.begin())),
      seen.handle};
}

SessionMesh& JobGroups::added_to(const Session& session, const SeenMesh& seen) {
  auto& mine = added_[session.options().id];
  return mine.try_emplace(seen.handle, SessionMesh{seen.mesh(), {}, {}}).first->second;
}

std::optional<GroupId> JobGroups::SeenMesh::listed(std::span<const Rank> in_mesh) const {
  for (std::uint32_t i = 0; i < list.mesh().dim_count(); ++i) {
    const auto group = list.group_of(rank, mesh::DimId(i));
    if (!group) continue;
    const std::span<const Rank> ranks = list.group(*group).ranks;
    if (std::equal(ranks.begin(), ranks.end(), in_mesh.begin(), in_mesh.end())) return in_job(*group);
  }
  return std::nullopt;
}

// The name is tried on a copy, which replaces the session's mesh once the group is there.
Result<shm::MeshAnswer> JobGroups::flatten(Session& session, std::uint64_t handle, std::string_view name,
                                           std::span<const std::string> dims) {
  MUSTER_ASSIGN_OR_RETURN(SeenMesh seen, see(session, handle));
  if (seen.slice)
    for (const std::string& dim : dims)
      if (const auto known = seen.find(dim); !known) return fail(known.error());
  mesh::Mesh wider = seen.mesh();
  MUSTER_ASSIGN_OR_RETURN(const mesh::DimId id, wider.flatten(name, dims));
  if (id.value < seen.mesh().dim_count()) return answer(seen, id, name);
  std::vector<Rank> in_mesh;
  std::vector<Rank> in_job;
  for (std::uint32_t c = 0; c < wider.dim(id).size; ++c) {
    in_mesh.push_back(wider.moved(seen.rank, id, c));
    in_job.push_back(seen.in_job(in_mesh.back()));
  }
  {
    const std::lock_guard lock(parts_.lock);
    seen.added = &added_to(session, seen);
    if (in_job.size() > 1) {
      std::optional<GroupId> group = seen.listed(in_mesh);
      if (!group) {
        MUSTER_ASSIGN_OR_RETURN(group, hold_by_name(session, name, in_job));
        const Nanos deadline = seen.made != nullptr ? seen.made->deadline : deadline_;
        if (deadline.count() > 0) table_.set_deadline(*group, deadline);
      }
      seen.added->groups.emplace(id.value, *group);
    }
    seen.added->mesh = std::move(wider);
  }
  return answer(seen, id, name);
}

Result<std::uint64_t> JobGroups::slice(Session& session, std::uint64_t handle,
                                       std::span<const std::string> dims) {
  MUSTER_ASSIGN_OR_RETURN(const SeenMesh seen, see(session, handle));
  if (seen.slice)
    for (const std::string& dim : dims)
      if (const auto known = seen.find(dim); !known) return fail(known.error());
  const std::lock_guard lock(parts_.lock);
  SessionMesh& added = added_to(session, seen);
  const std::vector<std::string_view> names(dims.begin(), dims.end());
  MUSTER_ASSIGN_OR_RETURN(const mesh::ViewId view, added.mesh.slice(names));
  for (const auto& [known, of] : added.slices)
    if (of == view) return known;
  return added.slices.emplace(table_.next_mesh_handle(), view).first->first;
}

// Groups of the session's flattened names that are not groups of the mesh.
std::vector<GroupId> JobGroups::flattened(SessionId session, std::uint64_t mesh) const {
  std::vector<GroupId> groups;
  const auto mine = added_.find(session);
  if (mine == added_.end()) return groups;
  const auto added = mine->second.find(mesh);
  if (added == mine->second.end()) return groups;
  for (const auto& [dim, group] : added->second.groups)
    if (table_.holds(group, Holder::of(session))) groups.push_back(group);
  return groups;
}

// Whether the session has named the group in a mesh other than `except`: equal names of equal ranks are one.
bool JobGroups::is_flattened(SessionId session, GroupId group, std::uint64_t except) const {
  const auto mine = added_.find(session);
  if (mine == added_.end()) return false;
  return std::any_of(mine->second.begin(), mine->second.end(), [&](const auto& added) {
    const auto& groups = added.second.groups;
    return added.first != except && std::any_of(groups.begin(), groups.end(),
                                                [&](const auto& named) { return named.second == group; });
  });
}

// Starts that are in a ring by now were begun before, so they get the deadline that they were begun with.
Result<std::vector<std::uint64_t>> JobGroups::set_deadline(Session& session, std::uint64_t handle,
                                                           Nanos deadline) {
  MUSTER_ASSIGN_OR_RETURN(const SeenMesh seen, see(session, handle));
  if (seen.slice)
    return fail(Code::kBadArgument, "a slice has the groups of its mesh; change the deadline of that");
  const std::lock_guard lock(parts_.lock);
  for (std::uint32_t r = 0; r < seen.list.mesh().world(); ++r)
    if (const Rank rank = seen.in_job(Rank(r));
        parts_.spec.world.is_local(rank) && parts_.slots.of(rank).session)
      parts_.slots.drain_all(rank);
  std::vector<GroupId> groups;
  for (std::uint32_t g = 0; g < seen.list.size(); ++g) groups.push_back(seen.in_job(GroupId(g)));
  for (const auto& [owner, added] : added_)
    for (const GroupId group : flattened(owner, seen.handle)) groups.push_back(group);
  (seen.made != nullptr ? seen.made->deadline : deadline_) = deadline;
  std::vector<std::uint64_t> mine;
  for (const GroupId group : groups) {
    table_.set_deadline(group, deadline);
    const auto& ranks = parts_.graph.groups()[group.value].ranks;
    if (std::find(ranks.begin(), ranks.end(), session.options().rank) != ranks.end())
      mine.push_back(table_.handle_of(group));
  }
  return mine;
}

// ---- questions -------------------------------------------------------------------------------------

Result<shm::MeshAnswer> JobGroups::mesh_dim(const Session& session, std::uint64_t handle,
                                            std::string_view dim) {
  MUSTER_ASSIGN_OR_RETURN(const SeenMesh seen, see(session, handle));
  MUSTER_ASSIGN_OR_RETURN(const mesh::DimId id, seen.find(dim));
  return answer(seen, id, dim);
}

shm::MeshAnswer JobGroups::answer(const SeenMesh& seen, mesh::DimId id, std::string_view dim) {
  shm::MeshAnswer answer;
  answer.coordinate = static_cast<std::int32_t>(seen.mesh().coordinate(seen.rank, id));
  answer.size = static_cast<std::int32_t>(seen.mesh().dim(id).size);
  answer.group = MUSTER_GROUP_SELF;
  if (id.value >= seen.list.mesh().dim_count()) {
    const auto named = seen.added->groups.find(id.value);
    if (named != seen.added->groups.end()) answer.group = table_.handle_of(named->second);
  } else if (const auto group = seen.list.group_of(seen.rank, id)) {
    answer.group = table_.handle_of(seen.in_job(*group));
    name_group(seen.in_job(*group), dim);
  }
  return answer;
}

// A rank set has many names. Its users know the first for which one of them asks.
void JobGroups::name_group(GroupId group, std::string_view name) {
  if (asked_for_[group.value]) return;
  const std::lock_guard lock(parts_.lock);
  asked_for_[group.value] = true;
  if (parts_.graph.groups()[group.value].name == name) return;
  scheduler::Group named = parts_.graph.groups()[group.value];
  named.name = name;
  parts_.graph.set_group(group, std::move(named));
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
