// GroupTable: the groups of a job, and the handles by which clients know them. Groups of the mesh and of each
// rank alone exist from the start. Ranks make the others when they go on without a lost rank, or with one
// more (muster_group_make, _shrink, muster_mesh_make).
//
// A group made by name is found by its name and ranks, so that its members need not talk to get the same one.
// A group of a made mesh is found through the mesh (JobMeshes); a group of a shrink (ShrinkRounds) only by
// its members. A group lives as long as it has a holder. A handle is never given twice.
//
// The limit counts the groups that one session holds, so a call fails because of that rank's own calls alone.
// There is as much room again for groups that some members have not made yet, or have freed early. If that is
// full, the caller is told to wait.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/base/world.hpp"
#include "scheduler/run/match_queue.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::engine {

// A session holds a made group by itself, or by a mesh that has the group.
struct Holder {
  SessionId session;
  std::optional<std::uint64_t> mesh = {};  // its handle
  friend auto operator<=>(const Holder&, const Holder&) = default;
};

// Owns    the names, ranks and holders of made groups, and the default deadline of each group.
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
  // A made group must be held by the asker's session.
  Result<GroupId> find(std::uint64_t handle, Rank asker, SessionId session) const;

  // The default timeout of the group's operations; 0: that of the job.
  Nanos deadline(GroupId group) const { return traits_[group.value].deadline; }
  void set_deadline(GroupId group, Nanos deadline) { traits_[group.value].deadline = deadline; }
  // Notes that a session has asked for the group by a dim. True: it is the first.
  bool ask_for(GroupId group) { return !std::exchange(traits_[group.value].asked_for, true); }

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
  // In how many ways the session holds the group: by itself, and by meshes.
  std::size_t ways_held(GroupId group, SessionId session) const;
  std::vector<GroupId> held_by(Holder holder) const;
  // True if no holder is left.
  bool drop(GroupId group, Holder holder);
  // All holds of an ended session. True if it was the last holder.
  bool drop_all(GroupId group, SessionId session);
  bool is_held(GroupId group) const { return !entry(group).holders.empty(); }
  bool is_found_by_name(GroupId group) const { return entry(group).found == Found::kByName; }
  void forget(GroupId group);
  // All made groups that exist.
  std::vector<GroupId> all_made() const;

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
  static bool may_use(const Entry& entry, SessionId session);

  Sizes sizes_;
  std::uint64_t epoch_;
  std::vector<Entry> made_;
  struct Traits {
    Nanos deadline{0};
    bool asked_for = false;
  };
  std::vector<Traits> traits_;  // of all groups
  std::deque<GroupId> free_;
  std::uint64_t serial_ = 0;
};

}  // namespace muster::engine
