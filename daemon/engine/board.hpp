// Board: the engine's side of the direct path. It makes the memory, counts the epochs of each group's direct
// place, and reads who has come how far. It moves no data and no operation waits for it.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/control.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/segment.hpp"
#include "daemon/engine/memory_account.hpp"
#include "scheduler/run/epochs.hpp"
#include "scheduler/run/match_queue.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

// What a member of a group waits for, as its client says: copied and checked.
struct DirectQuestion {
  GroupId group;
  std::uint32_t index = 0;  // who asks
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t phase = 0;
  shm::DirectWait kind = shm::DirectWait::kArrivals;
  std::uint32_t peer = 0;
};

// Owns    a direct segment for each rank, the group page, and the epochs of each group's direct place.
// Thread  under the engine's baton.
// Bound   the causes that Epochs keeps, and kDisagreementsKept disagreements a group.
// Fails   create: NO_RESOURCE. What clients have written is read once and believed in nothing but reports.
class Board {
 public:
  // Places of groups that come later are empty. Each rank's segment has room for made_max of them, and
  // memory once they come.
  static Result<Board> create(std::span<const scheduler::Group> groups, std::uint32_t world,
                              std::uint32_t made_max, std::uint64_t epoch, const shm::Headroom& headroom,
                              const std::shared_ptr<MemoryAccount>& account = nullptr);

  // ---- memory ----------------------------------------------------------------------------------
  // Ready for a new client of the rank: what the last one left there counts no more.
  void reset(Rank rank);
  int segment_descriptor(Rank rank) const { return segments_[rank.value].memory.get(); }
  std::uint64_t segment_bytes(Rank rank) const { return segments_[rank.value].mapping.size(); }
  int page_descriptor() const { return page_read_only_.get(); }
  std::uint64_t page_bytes() const { return page_.size(); }
  // Seats for a group that has come, in an empty place, or none. BUSY: a member has made_max of them, until
  // one goes. NO_RESOURCE: no memory for more.
  Status seat_group(GroupId group, std::span<const Rank> ranks);
  // Nobody uses the group any more: its place is empty again.
  void unseat_group(GroupId group);
  // The epoch in which the present group of that place began.
  std::uint64_t first_epoch(GroupId group) const { return groups_[group.value].first_epoch; }
  // Where the seats of a group's members lie in their segments.
  std::vector<shm::DirectMember> members(GroupId group) const;

  // ---- epochs ----------------------------------------------------------------------------------
  // Ends the group's present epoch, unless it has ended by that fault before. After a loss, what all members
  // had arrived at goes on; any other end is for all, whatever they are doing.
  void end(GroupId group, const scheduler::CausePtr& cause, scheduler::Epochs::Why why);
  // The rank has a client from now on, or has none.
  void set_attached(Rank rank, bool attached);
  // So many segments of the rank's arena are gone: peers forget what they mapped.
  void set_retired(Rank rank, std::uint64_t segments);
  // A member is named absent, so no operation of the group may begin; nullptr: any may.
  void set_absence(GroupId group, scheduler::CausePtr cause);
  std::uint64_t epoch(GroupId group) const { return groups_[group.value].epochs.present(); }
  // Positions of the present epoch begin above it.
  std::uint64_t base(GroupId group) const { return groups_[group.value].base; }
  // What a member hears that stands in `epoch`: why it has ended, or why nobody may begin; nullptr if
  // neither.
  scheduler::CausePtr cause_of(GroupId group, std::uint64_t epoch) const;
  // Where it stands once it has heard that.
  std::uint64_t epoch_after(GroupId group, std::uint64_t epoch) const;

  // ---- reports ---------------------------------------------------------------------------------
  // The members that the question waits for, by index.
  std::vector<std::uint32_t> missing(const DirectQuestion& question) const;
  // The plan handle with which a member is in the operation; 0 if it is not.
  std::uint64_t plan_of(const DirectQuestion& question, std::uint32_t index) const;
  // What was found of an operation in which the members differ: the first to ask may be gone when the others
  // do. nullptr: nothing yet.
  const Status* disagreement(const DirectQuestion& question) const;
  void remember_disagreement(const DirectQuestion& question, const Status& found);
  // What a rank has run or runs, as it says itself: checked for being possible, and believed in reports only.
  struct Flight {
    std::uint64_t index = 0;  // among the rank's operations
    GroupId group;
    std::uint32_t member = 0;  // this rank's index in the group
    shm::RecordedWhat what;    // without kRecordUneven
    bool uneven = false;
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;  // in its epoch, from 1
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
    Instant begun{0};
    shm::RecordState state = shm::RecordState::kOpen;
    std::optional<Instant> ended;
  };
  std::optional<Flight> latest_flight(Rank rank) const;
  // The one with that index, if it is still there.
  std::optional<Flight> flight(Rank rank, std::uint64_t index) const;
  // The one whose readers the rank waits for before it does anything else, if there is one.
  std::optional<Flight> awaited_flight(Rank rank) const;
  // All that are still there with an index above `after`, oldest first; *lost counts those that are not.
  std::vector<Flight> flights(Rank rank, std::uint64_t after = 0, std::uint64_t* lost = nullptr) const;
  std::uint64_t recorded(Rank rank) const;
  // Clients note when their operations end while this is on.
  void set_recording(bool on);
  // The rank's own counters.
  struct Counted {
    std::uint64_t operations = 0;
    std::uint64_t bytes_moved = 0;
  };
  Counted counted(Rank rank) const;
  // How far the group has come in its present epoch, by its first member.
  struct Progress {
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
  };
  Progress progress(GroupId group) const;
  // The rank's client has given plans new counts of which the engine does not know.
  bool untold(Rank rank) const;

  static constexpr std::size_t kDisagreementsKept = 16;

 private:
  struct Segment {
    shm::Descriptor memory;
    shm::Mapping mapping;
    std::map<std::uint64_t, GroupId> seats;  // by offset
    std::uint64_t spare = 0;                 // where seats of groups begin that have come later
    std::uint64_t reserved = 0;              // bytes that have memory, in whole pages
  };
  struct Seat {
    std::uint32_t rank = 0;
    std::uint64_t offset = 0;
  };
  struct Disagreement {
    std::uint64_t position = 0;
    std::uint32_t sender = 0;  // of a pair; equal indices: all members
    std::uint32_t receiver = 0;
    Status found;
  };
  static Disagreement about(const DirectQuestion& question);
  struct GroupState {
    std::vector<Seat> seats;  // by index in the group
    scheduler::Epochs epochs;
    std::uint64_t first_epoch = 1;
    std::uint64_t base = 0;  // of the present epoch
    std::uint64_t met = 0;   // the last position at which all had arrived, as far as it has been counted
    std::uint64_t used = 0;  // epochs that have ended and in which a member had arrived anywhere
    scheduler::CausePtr absence;
    std::deque<Disagreement> disagreements;
  };
  Board() = default;
  Status create_segments(std::uint64_t room, const shm::Headroom& headroom);
  std::optional<std::uint64_t> room_in(const Segment& segment, std::uint64_t bytes) const;
  Status reserve(Segment& segment, std::uint64_t end);
  Status create_page(std::uint64_t epoch, const shm::Headroom& headroom);
  std::uint64_t page_size() const;
  shm::GroupLine* line(GroupId group);
  shm::RankLine* rank_line(Rank rank);
  std::uint64_t arrived(GroupId group, std::uint32_t index) const;
  std::uint64_t highest_position(GroupId group) const;
  std::uint64_t count_met(GroupId group) const;
  const shm::DirectHeader* header(Rank rank) const;
  const std::byte* seat(GroupId group, std::uint32_t index) const;

  std::shared_ptr<MemoryAccount> account_;
  MemoryCharge charge_;
  std::uint32_t made_max_ = 0;
  std::vector<Segment> segments_;
  std::vector<std::uint64_t> lives_;  // by rank
  std::vector<GroupState> groups_;
  shm::Descriptor page_memory_;
  shm::Descriptor page_read_only_;
  shm::Mapping page_;
};

// A descriptor of the same memory by which it can only be read. Errors: NO_RESOURCE.
Result<shm::Descriptor> read_only(int memory);

}  // namespace muster::engine
