// GroupEpochs: the epochs of each group's operations on the direct path (scheduler/run/epochs.hpp), and their
// publication on the group page.
#pragma once

#include "daemon/engine/direct/direct_segments.hpp"
#include "scheduler/run/epochs.hpp"

#include <cstdint>
#include <vector>

namespace muster::engine {

// Owns    the epochs of each group.
// Thread  under the engine's lock.
// Bound   the causes that Epochs keeps, for each group.
// Fails   never.
class GroupEpochs {
 public:
  explicit GroupEpochs(DirectSegments& segments);

  // Begins anew: another group has this place from now on, or none.
  void begin_group(GroupId group);
  // The rank has its first client in this run.
  void begin(Rank rank);
  // The rank has another client, or a new run begins: it stands in the present epochs.
  void enter(Rank rank);
  // Ends the group's present epoch, unless that fault has ended it before. After a loss, operations at which
  // all members had arrived go on; any other end is for all operations.
  void end(GroupId group, const scheduler::CausePtr& cause, scheduler::Epochs::Why why);
  // A member is absent, so no operation of the group may begin; nullptr: any may.
  void set_absence(GroupId group, scheduler::CausePtr cause);

  // The epoch in which the present group of that place began.
  std::uint64_t first(GroupId group) const { return groups_[group.value].first_epoch; }
  std::uint64_t present(GroupId group) const { return groups_[group.value].epochs.present(); }
  // Positions of the present epoch begin above it.
  std::uint64_t base(GroupId group) const { return groups_[group.value].base; }
  // The cause that a member in `epoch` gets: why the epoch has ended, or why no operation may begin; nullptr
  // if neither.
  scheduler::CausePtr cause_of(GroupId group, std::uint64_t epoch) const;
  // The epoch in which the member stands.
  std::uint64_t epoch_of(GroupId group, std::uint32_t index) const {
    return groups_[group.value].members[index].epoch();
  }
  // The member has got the cause for `epoch`. Returns the epoch in which it stands now.
  std::uint64_t move_on(GroupId group, std::uint32_t index, std::uint64_t epoch);

 private:
  struct GroupState {
    scheduler::Epochs epochs;
    std::uint64_t first_epoch = 1;
    std::uint64_t base = 0;  // of the present epoch
    std::uint64_t met = 0;   // the last position at which all had arrived, as far as it has been counted
    std::uint64_t used = 0;  // ended epochs in which a member had arrived anywhere
    scheduler::CausePtr absence;
    std::vector<scheduler::Epochs::Member> members;  // by index
  };
  scheduler::Epochs::Member& member(GroupId group, Rank rank);
  void publish(GroupId group, Rank rank, std::uint64_t region);
  std::uint64_t highest_position(GroupId group) const;
  std::uint64_t count_met(GroupId group) const;

  DirectSegments& segments_;
  std::vector<GroupState> groups_;
};

}  // namespace muster::engine
