// The engine's groups: those that it opens with the job, and those that its clients make.
#include "api/base/words.hpp"
#include "api/shm/message.hpp"
#include "daemon/engine/engine.hpp"

#include <algorithm>

namespace muster::engine {
namespace {

constexpr char kSurvivors[] = "survivors";

Result<mesh::GroupList> plan_groups(std::string_view text, std::uint32_t world,
                                    const control::JobSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(const mesh::Degrees degrees, mesh::Degrees::parse(text));
  std::vector<mesh::Flatten> flattens;
  for (const auto& [name, dims] : spec.flatten) flattens.push_back({name, dims});
  MUSTER_ASSIGN_OR_RETURN(const mesh::Mesh whole, mesh::Mesh::build(degrees, world, flattens));
  return mesh::GroupList(whole);
}

// What reports call a group: "ranks 0 2-4" where its makers gave no name.
std::string shown_name(std::string_view name, std::span<const Rank> ranks) {
  if (!name.empty()) return std::string(name);
  std::vector<std::uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value);
  const std::string text = fmt::format("ranks {}", rank_list(numbers));
  if (text.size() < shm::kNameBytes) return text;
  return fmt::format("{}...", text.substr(0, shm::kNameBytes - sizeof "..."));
}

}  // namespace

Result<mesh::GroupList> Engine::groups_of_mesh(const control::JobSpec& spec) {
  return plan_groups(spec.mesh, spec.world, spec);
}

// One transaction: every group of the mesh, and one of each rank alone, is connected before anybody may use
// any. The places of groups that are made later stay empty.
Status Engine::open_groups() {
  std::vector<scheduler::Group> groups = all_groups();
  std::vector<std::unique_ptr<transport::Communicator>> communicators(table_.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    MUSTER_ASSIGN_OR_RETURN(communicators[g],
                            open_communicator_(static_cast<std::int32_t>(groups[g].ranks.size())));
  }
  groups.resize(table_.size());
  asked_for_.resize(table_.size());
  MUSTER_ASSIGN_OR_RETURN(
      auto tally,
      Tally::create(spec_.world, std::span(groups).first(group_list_.size()),
                    {table_.first_made(), table_.size() - table_.first_made()}, spec_.epoch, account_));
  tally_.emplace(std::move(tally));
  for (std::uint32_t g = 0; g < groups.size(); ++g) lateness_.set_group(GroupId(g), groups[g].ranks);
  graph_.emplace(graph_options_, std::move(groups), *this);
  const std::vector<device::Device*> devices(spec_.world, device_.get());
  MUSTER_ASSIGN_OR_RETURN(
      auto executor, scheduler::Executor::open({devices, graph_options_.lanes, graph_options_.launch_depth},
                                               std::move(communicators)));
  executor_.emplace(std::move(executor));
  return open_board();
}

Status Engine::open_board() {
  if (device_->info().kind != device::Kind::kHost) return {};
  const std::uint32_t made_max = GroupTable::kRoom * spec_.groups_made_max;
  MUSTER_ASSIGN_OR_RETURN(auto board, Board::create(graph_->groups(), spec_.world, made_max, spec_.epoch,
                                                    shm::memory_headroom(), account_));
  board_.emplace(std::move(board));
  return {};
}

std::vector<scheduler::Group> Engine::all_groups() const {
  std::vector<scheduler::Group> groups;
  for (std::uint32_t g = 0; g < group_list_.size(); ++g) {
    const mesh::MeshGroup group = group_list_.group(GroupId(g));
    groups.push_back({std::string(group.name), {group.ranks.begin(), group.ranks.end()}});
  }
  for (std::uint32_t rank = 0; rank < spec_.world; ++rank) groups.push_back({"self", {Rank(rank)}});
  return groups;
}

// ---- made groups -----------------------------------------------------------------------------------

// No room for a group: BUSY as long as others are about to make or free theirs, so that it is asked for
// again.
Status Engine::no_room(const Status& why) const {
  if (why.code() != Code::kBusy) return why;
  return failure(
      table_.in_transit() ? Code::kBusy : Code::kNoResource,
      "{}; free groups (muster_group_free, muster_mesh_free), or raise limits.groups_made_max ({})",
      why.message(), spec_.groups_made_max);
}

// Under the baton. Enters the group with its communicator and seats, or changes nothing.
Result<GroupId> Engine::enter_group(std::string_view name, std::span<const Rank> ranks,
                                    GroupTable::Found found) {
  MUSTER_ASSIGN_OR_RETURN(auto communicator, open_communicator_(static_cast<std::int32_t>(ranks.size())));
  const auto entered = table_.make(name, ranks, found);
  if (!entered) return fail(no_room(entered.error()));
  const GroupId group = *entered;
  if (board_) {
    const Status seated = board_->add_group(group, ranks);
    if (!seated.ok()) {
      table_.forget(group);
      return fail(no_room(seated));
    }
  }
  executor_->connect(group, std::move(communicator));
  asked_for_[group.value] = false;
  graph_->set_group(group, {shown_name(name, ranks), {ranks.begin(), ranks.end()}});
  lateness_.set_group(group, ranks);
  tally_->set_group(group, graph_->groups()[group.value]);
  return group;
}

// Under the baton, for a group that nobody holds: neither a plan nor a start of it is left. Memory that its
// members shared by name stays, and so does the group.
void Engine::retire_group(GroupId group) {
  const NameScope names{NameScope::Kind::kGroup, group.value};
  if (table_.is_held(group)) return;
  // Such a group could not be found again, and with it the memory.
  if (!table_.is_found_by_name(group)) named_->forget_all_in(names, gone_);
  if (named_->any_in(names)) return;
  graph_->set_group(group, {graph_->groups()[group.value].name, {}});  // a recording may still tell of it
  executor_->connect(group, nullptr);
  if (board_) board_->remove_group(group);
  lateness_.set_group(group, {});
  lateness_log_.forget(group);
  tally_->set_group(group, {});
  shrinks_.forget(group);
  flight_log_.forget(group);
  for (Seat& seat : seats_)
    if (seat.finished && seat.finished->group == group) seat.finished.reset();
  table_.forget(group);
}

Result<std::uint64_t> Engine::make_group(Session& session, std::string_view name,
                                         std::span<const std::int32_t> said) {
  const Rank self = session.options().rank;
  std::vector<Rank> ranks;
  std::vector<bool> seen(spec_.world);
  for (const std::int32_t rank : said) {
    if (rank < 0 || static_cast<std::uint32_t>(rank) >= spec_.world)
      return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", rank, spec_.world - 1, spec_.name);
    if (seen[static_cast<std::size_t>(rank)])
      return fail(Code::kBadArgument, "rank {} stands twice in the list of the group's members", rank);
    seen[static_cast<std::size_t>(rank)] = true;
    ranks.push_back(Rank(static_cast<std::uint32_t>(rank)));
  }
  if (!seen[self.value])
    return fail(Code::kBadArgument, "rank {} makes a group of which it is no member", self.value);
  if (ranks.size() == 1) return MUSTER_GROUP_SELF;
  bury();
  const std::lock_guard lock(baton_);
  const Holder holder = Holder::of(session.options().id);
  std::optional<GroupId> group = table_.made(name, ranks);
  if (group && table_.holds(*group, holder)) return table_.handle_of(*group);
  MUSTER_RETURN_IF_ERROR(table_.may_hold(self, session.options().id, 1));
  if (!group) {
    MUSTER_ASSIGN_OR_RETURN(group, enter_group(name, ranks, GroupTable::Found::kByName));
  }
  table_.hold(*group, holder);
  refresh_absences();
  return table_.handle_of(*group);
}

// BUSY while it waits for others, so that the client asks again; nobody waits in here. It is always a new
// group, because one of the same ranks from before may have verdicts for some of them.
Result<std::uint64_t> Engine::shrink_group(Session& session, std::uint64_t handle, bool gives_up) {
  const Rank self = session.options().rank;
  const SessionId asker = session.options().id;
  MUSTER_ASSIGN_OR_RETURN(const GroupId of, find_group(scope(session), handle));
  bury();
  const std::lock_guard lock(baton_);
  const scheduler::Group& whole = graph_->groups()[of.value];
  if (std::find(whole.ranks.begin(), whole.ranks.end(), self) == whole.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", self.value, whole.name);
  if (const auto answer = shrinks_.take_answer(of, asker)) return *answer;
  const std::vector<SessionId> attached = sessions_of(whole.ranks);
  const std::vector<SessionId> waited = shrinks_.ask(of, asker, attached);
  if (!waited.empty()) {
    std::vector<std::uint32_t> ranks;
    for (const Rank rank : whole.ranks) {
      const auto& member = seats_[rank.value].session;
      if (member && std::find(waited.begin(), waited.end(), member->options().id) != waited.end())
        ranks.push_back(rank.value);
    }
    if (gives_up) shrinks_.give_up(of, asker);
    return fail(gives_up ? Code::kTimeout : Code::kBusy,
                "group {}: rank{} {} {} attached and did not call muster_group_shrink", whole.name,
                ranks.size() == 1 ? "" : "s", rank_list(ranks), ranks.size() == 1 ? "is" : "are");
  }
  const std::vector<SessionId> askers = shrinks_.askers(of, attached);
  shrinks_.close(of, askers, close_shrink(of, askers));
  return *shrinks_.take_answer(of, asker);
}

// The group in which those who have asked go on.
Result<std::uint64_t> Engine::close_shrink(GroupId of, const std::vector<SessionId>& askers) {
  const std::vector<Rank> members = graph_->groups()[of.value].ranks;
  std::vector<Rank> left;
  for (const Rank rank : members) {
    const auto& member = seats_[rank.value].session;
    if (member && std::find(askers.begin(), askers.end(), member->options().id) != askers.end())
      left.push_back(rank);
  }
  if (left.size() == members.size()) return table_.handle_of(of);
  if (left.size() <= 1) return MUSTER_GROUP_SELF;
  for (const Rank rank : left)
    MUSTER_RETURN_IF_ERROR(table_.may_hold(rank, seats_[rank.value].session->options().id, 1));
  MUSTER_ASSIGN_OR_RETURN(const GroupId made, enter_group(kSurvivors, left, GroupTable::Found::kOtherwise));
  for (const SessionId asker : askers) table_.hold(made, Holder::of(asker));
  refresh_absences();
  return table_.handle_of(made);
}

// Of those who are attached.
std::vector<SessionId> Engine::sessions_of(std::span<const Rank> ranks) const {
  std::vector<SessionId> sessions;
  for (const Rank rank : ranks)
    if (const auto& session = seats_[rank.value].session) sessions.push_back(session->options().id);
  return sessions;
}

Status Engine::free_group(Session& session, std::uint64_t handle) {
  if (handle == MUSTER_GROUP_SELF) return {};
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, find_group(scope(session), handle));
  const LetGo after_the_baton(gone_);
  const std::lock_guard lock(baton_);
  const std::string& name = graph_->groups()[group.value].name;
  if (!table_.holds(group, Holder::of(session.options().id)))
    return failure(Code::kBadArgument, "group {} belongs to a mesh and goes with it", name);
  drain_all(seats_[session.options().rank.value]);
  if (const std::size_t uses = session.uses(group); uses > 0)
    return failure(Code::kBusy,
                   "{} plans and shared buffers of this session use group {}; destroy them first", uses,
                   name);
  if (table_.drop(group, Holder::of(session.options().id))) retire_group(group);
  return {};
}

// ---- made meshes -----------------------------------------------------------------------------------

Result<std::uint64_t> Engine::make_mesh(Session& session, std::uint64_t over, std::string_view text) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId group, find_group(scope(session), over));
  bury();
  const scheduler::Group& whole = graph_->groups()[group.value];
  const Rank self = session.options().rank;
  const auto at = std::find(whole.ranks.begin(), whole.ranks.end(), self);
  if (at == whole.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", self.value, whole.name);
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList list,
                          plan_groups(text, static_cast<std::uint32_t>(whole.ranks.size()), spec_));
  // A rank alone is a group of its own, under one handle for all.
  const std::uint64_t key = over == MUSTER_GROUP_SELF ? MUSTER_GROUP_SELF - 1 - self.value : over;
  const std::lock_guard lock(baton_);
  const SessionId asker = session.options().id;
  MadeMesh* mesh = table_.mesh_over(key, list.mesh().degrees().canonical());
  if (mesh != nullptr && mesh->sessions.count(asker) > 0) return mesh->handle;
  const auto in_mesh = Rank(static_cast<std::uint32_t>(at - whole.ranks.begin()));
  const auto mine = static_cast<std::uint32_t>(list.count_of(in_mesh));
  MUSTER_RETURN_IF_ERROR(table_.may_hold(self, asker, mine));
  if (mesh == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(mesh, enter_mesh(key, std::move(list), std::vector<Rank>(whole.ranks)));
  }
  mesh->sessions.insert(asker);
  refresh_absences();
  return mesh->handle;
}

// All groups of the mesh, or none.
Result<MadeMesh*> Engine::enter_mesh(std::uint64_t over, mesh::GroupList list, std::span<const Rank> ranks) {
  const std::string degrees = list.mesh().degrees().canonical();
  MadeMesh& mesh = table_.add_mesh({0, over, degrees, std::move(list), {ranks.begin(), ranks.end()}, {}, {}});
  for (std::uint32_t g = 0; g < mesh.list.size(); ++g) {
    const mesh::MeshGroup wanted = mesh.list.group(GroupId(g));
    std::vector<Rank> members;
    for (const Rank rank : wanted.ranks) members.push_back(ranks[rank.value]);
    const auto group = enter_group(wanted.name, members, GroupTable::Found::kOtherwise);
    if (!group) {
      leave_mesh(mesh);
      return fail(group.error());
    }
    table_.hold(*group, {Holder::Kind::kMesh, mesh.handle});
    mesh.groups.push_back(*group);
  }
  return &mesh;
}

void Engine::leave_mesh(MadeMesh& mesh) {
  const Holder holder{Holder::Kind::kMesh, mesh.handle};
  for (const GroupId group : mesh.groups)
    if (table_.drop(group, holder)) retire_group(group);
  table_.forget_mesh(mesh.handle);
}

Status Engine::free_mesh(Session& session, std::uint64_t handle) {
  const LetGo after_the_baton(gone_);
  const std::lock_guard lock(baton_);
  MadeMesh* mesh = table_.mesh(handle);
  if (mesh == nullptr || mesh->sessions.count(session.options().id) == 0)
    return failure(Code::kStale, "no such mesh; make it with muster_mesh_make");
  drain_all(seats_[session.options().rank.value]);
  std::size_t uses = 0;
  for (const GroupId group : mesh->groups) uses += session.uses(group);
  if (uses > 0)
    return failure(
        Code::kBusy,
        "{} plans and shared buffers of this session use groups of the mesh {}; destroy them first", uses,
        mesh->degrees);
  mesh->sessions.erase(session.options().id);
  if (mesh->sessions.empty()) leave_mesh(*mesh);
  return {};
}

// What a session held that is gone, once nothing of it runs any more.
void Engine::release_groups(SessionId session) {
  for (const std::uint64_t handle : table_.meshes_of(session)) {
    MadeMesh& mesh = *table_.mesh(handle);
    mesh.sessions.erase(session);
    if (mesh.sessions.empty()) leave_mesh(mesh);
  }
  for (const GroupId group : table_.all_made())
    if (table_.drop(group, Holder::of(session))) retire_group(group);
}

// ---- questions -------------------------------------------------------------------------------------

Result<shm::MeshAnswer> Engine::mesh_dim(const Session& session, std::uint64_t handle, std::string_view dim) {
  const MadeMesh* made = handle != MUSTER_MESH_JOB ? table_.mesh(handle) : nullptr;
  if (handle != MUSTER_MESH_JOB && (made == nullptr || made->sessions.count(session.options().id) == 0))
    return fail(Code::kStale, "no such mesh; make it with muster_mesh_make");
  const mesh::GroupList& list = made != nullptr ? made->list : group_list_;
  Rank rank = session.options().rank;
  if (made != nullptr) {
    const auto at = std::find(made->ranks.begin(), made->ranks.end(), rank);
    rank = Rank(static_cast<std::uint32_t>(at - made->ranks.begin()));
  }
  MUSTER_ASSIGN_OR_RETURN(const mesh::DimId id, list.mesh().find(dim));
  shm::MeshAnswer answer;
  answer.coordinate = static_cast<std::int32_t>(list.mesh().coordinate(rank, id));
  answer.size = static_cast<std::int32_t>(list.mesh().dim(id).size);
  answer.group = MUSTER_GROUP_SELF;
  if (const auto group = list.group_of(rank, id)) {
    const GroupId found = made != nullptr ? made->groups[group->value] : *group;
    answer.group = table_.handle_of(found);
    name_group(found, dim);
  }
  return answer;
}

// A rank set has many names, of which the first that is asked for is the one that its users know.
void Engine::name_group(GroupId group, std::string_view name) {
  if (asked_for_[group.value]) return;
  const std::lock_guard lock(baton_);
  asked_for_[group.value] = true;
  if (graph_->groups()[group.value].name == name) return;
  graph_->name_group(group, std::string(name));
  tally_->name_group(group, name);
}

Result<std::vector<std::int32_t>> Engine::group_ranks(const Session& session, std::uint64_t group,
                                                      shm::GroupAnswer* answer) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope(session), group));
  const scheduler::Group& found = graph_->groups()[id.value];
  std::vector<std::int32_t> ranks;
  answer->rank = -1;
  for (const Rank rank : found.ranks) {
    if (rank == session.options().rank) answer->rank = static_cast<std::int32_t>(ranks.size());
    ranks.push_back(static_cast<std::int32_t>(rank.value));
  }
  answer->ranks = static_cast<std::int32_t>(ranks.size());
  found.name.copy(answer->name, sizeof answer->name - 1);
  return ranks;
}

std::vector<scheduler::Group> Engine::made_groups() const {
  std::vector<scheduler::Group> groups;
  for (const GroupId group : table_.all_made()) groups.push_back(graph_->groups()[group.value]);
  return groups;
}

}  // namespace muster::engine
