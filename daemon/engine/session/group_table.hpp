// GroupTable: the groups of a job, and the handles by which clients know them. Groups of the mesh and of each
// rank alone exist from the start. Ranks make the others when they go on without a lost rank, or with one
// more (muster_group_make, _shrink, muster_mesh_make).
//
// A group made by name is found by its name and ranks, so that its members need not talk to get the same one.
// A group of a made mesh is found through the mesh; a group of a shrink (ShrinkRounds) only by its members. A
// group lives as long as it has a holder. A handle is never given twice.
//
// The limit counts the groups that one session holds, so a call fails because of that rank's own calls alone.
// There is as much room again for groups that some members have not made yet, or have freed early. If that is
// full, the caller is told to wait.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/mesh/group_list.hpp"
#include "api/base/result.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/match_queue.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// The holder of a made group: a session, or a mesh.
struct Holder {
  enum class Kind : std::uint8_t { kSession, kMesh };
  Kind kind = Kind::kSession;
  std::uint64_t id = 0;
  static Holder of(SessionId session) { return {Kind::kSession, session.value}; }
  friend auto operator<=>(const Holder&, const Holder&) = default;
};

// A mesh over some ranks of the job.
struct MadeMesh {
  std::uint64_t handle = 0;
  std::uint64_t over = 0;  // handle of the group that it was made over
  std::string degrees;     // canonical
  mesh::GroupList list;
  std::vector<Rank> ranks;       // of the job, by rank of the mesh
  std::vector<GroupId> groups;   // of the job, by group of the list
  std::set<SessionId> sessions;  // sessions that hold it
  Nanos deadline{0};             // default of its groups; 0: the job's
};

// Owns    the names, ranks and holders of made groups, the made meshes, and the default deadline of each
//         group.
// Thread  the conductor changes it under the engine's lock; the conductor, or the holder of the lock, reads.
// Bound   held_max made groups a session and rank, with those of its meshes; kRoom * held_max places a rank.
// Fails   find: STALE. may_hold: NO_RESOURCE, which names the limit. make: BUSY.
class GroupTable {
 public:
  struct Sizes {
    std::uint32_t mesh_groups = 0;
    World world;  // each rank of this node alone is a group
    std::uint32_t held_max = 0;
  };
  static constexpr std::uint32_t kRoom = 2;
  static constexpr std::uint32_t kGroupsMax = 1u << 16;  // as many as a handle can distinguish
  GroupTable(Sizes sizes, std::uint64_t epoch);

  // All places, in this order: groups of the mesh, single ranks, made groups.
  std::uint32_t size() const { return first_made() + static_cast<std::uint32_t>(made_.size()); }
  std::uint32_t first_made() const { return sizes_.mesh_groups + sizes_.world.local_count(); }
  std::uint32_t mesh_groups() const { return sizes_.mesh_groups; }

  // The public handle of a group, and back; MUSTER_GROUP_SELF is the asker's own single group.
  std::uint64_t handle_of(GroupId group) const;
  // A made group must be held by the asker's session, or by a mesh that it holds.
  Result<GroupId> find(std::uint64_t handle, Rank asker, SessionId session) const;

  // The default timeout of the group's operations; 0: that of the job.
  Nanos deadline(GroupId group) const { return deadlines_[group.value]; }
  void set_deadline(GroupId group, Nanos deadline) { deadlines_[group.value] = deadline; }

  // ---- made groups -----------------------------------------------------------------------------
  bool is_made(GroupId group) const { return group.value >= first_made(); }
  enum class Found : std::uint8_t { kByName, kOtherwise };
  // The made group of that name and those ranks, if it exists.
  std::optional<GroupId> made(std::string_view name, std::span<const Rank> ranks) const;
  // Whether the session of that rank may hold `more` further groups of which the rank is a member.
  Status may_hold(Rank rank, SessionId session, std::uint32_t more) const;
  // A made group is held by some of its members only: the others are about to make it, or have freed it.
  bool in_transit() const;
  // Enters a new group, which has no holder yet. It takes the place that has been free for longest, so that
  // records of its former group are gone by then.
  Result<GroupId> make(std::string_view name, std::span<const Rank> ranks, Found found);
  void hold(GroupId group, Holder holder);
  bool holds(GroupId group, Holder holder) const;
  // True if no holder is left.
  bool drop(GroupId group, Holder holder);
  bool is_held(GroupId group) const { return !entry(group).holders.empty(); }
  bool is_found_by_name(GroupId group) const { return entry(group).found == Found::kByName; }
  void forget(GroupId group);
  // All made groups that exist.
  std::vector<GroupId> all_made() const;

  // ---- made meshes -------------------------------------------------------------------------------
  MadeMesh* mesh(std::uint64_t handle);
  const MadeMesh* mesh(std::uint64_t handle) const { return const_cast<GroupTable*>(this)->mesh(handle); }
  MadeMesh* mesh_over(std::uint64_t group, std::string_view degrees);
  MadeMesh& add_mesh(MadeMesh mesh);
  void forget_mesh(std::uint64_t handle) { meshes_.erase(handle); }
  // For a slice, which has no other handle than a mesh has.
  std::uint64_t next_mesh_handle() { return ++serial_; }
  std::vector<std::uint64_t> meshes_of(SessionId session) const;

 private:
  struct Entry {
    std::uint64_t serial = 0;  // 0: free
    std::string name;
    std::vector<Rank> ranks;
    Found found = Found::kOtherwise;
    std::set<Holder> holders;
  };
  Entry& entry(GroupId group) { return made_[group.value - first_made()]; }
  const Entry& entry(GroupId group) const { return made_[group.value - first_made()]; }
  std::uint64_t generation_of(GroupId group) const;
  bool may_use(const Entry& entry, SessionId session) const;

  Sizes sizes_;
  std::uint64_t epoch_;
  std::vector<Entry> made_;
  std::vector<Nanos> deadlines_;
  std::deque<GroupId> free_;
  std::map<std::uint64_t, MadeMesh> meshes_;
  std::uint64_t serial_ = 0;
};

}  // namespace muster::engine
