#include "daemon/engine/direct/group_epochs.hpp"

#include "api/shm/fence.hpp"

#include <algorithm>

namespace muster::engine {
namespace {

using shm::Published;

// No epoch can have more positions: a member that claims more is not believed.
constexpr std::uint64_t kPositionsMax = std::uint64_t{1} << 44;

}  // namespace

GroupEpochs::GroupEpochs(DirectSegments& segments) : segments_(segments), groups_(segments.groups()) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    groups_[g].members.resize(segments_.member_count(GroupId(g)));
    Published<std::uint64_t>(&segments_.line(GroupId(g))->epoch).store_release(groups_[g].epochs.present());
  }
}

// A new epoch tells the records of the new group from those of the former group in this place.
void GroupEpochs::begin_group(GroupId group) {
  GroupState next;
  next.first_epoch = present(group) + 1;
  next.epochs = scheduler::Epochs(next.first_epoch);
  next.members.resize(segments_.member_count(group), scheduler::Epochs::Member(next.first_epoch));
  groups_[group.value] = std::move(next);
  Published<std::int32_t>(&segments_.line(group)->absence).store_ordered(0);
  Published<std::uint64_t>(&segments_.line(group)->epoch).store_ordered(present(group));
}

scheduler::Epochs::Member& GroupEpochs::member(GroupId group, Rank rank) {
  return groups_[group.value].members[*segments_.index_of(group, rank)];
}

void GroupEpochs::publish(GroupId group, Rank rank, std::uint64_t region) {
  auto* words = reinterpret_cast<shm::MemberRegion*>(segments_.writable(rank) + region);
  Published<std::uint64_t>(&words->epoch).store_ordered(member(group, rank).epoch());
}

void GroupEpochs::begin(Rank rank) {
  for (const auto& [offset, group] : segments_.regions_of(rank)) {
    member(group, rank).begin(groups_[group.value].epochs);
    publish(group, rank, offset);
  }
}

void GroupEpochs::enter(Rank rank) {
  for (const auto& [offset, group] : segments_.regions_of(rank)) {
    member(group, rank).enter(groups_[group.value].epochs);
    publish(group, rank, offset);
  }
}

// The position at which all members have arrived, present or not. A member that has completed an operation
// counts, because it had seen all others arrive. 0: the group has no direct path.
std::uint64_t GroupEpochs::count_met(GroupId group) const {
  if (segments_.member_count(group) == 0) return 0;
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t i = 0; i < segments_.member_count(group); ++i)
    least = std::min(least, segments_.arrived(group, i));
  return least;
}

// The highest position that a member has used for an operation or for a message of a pair.
std::uint64_t GroupEpochs::highest_position(GroupId group) const {
  const GroupState& state = groups_[group.value];
  std::uint64_t highest = state.base;
  const auto use = [&](std::uint64_t position) {
    if (position <= state.base + kPositionsMax) highest = std::max(highest, position);
  };
  for (std::uint32_t i = 0; i < segments_.member_count(group); ++i) {
    use(segments_.arrived(group, i));
    const auto* pairs =
        reinterpret_cast<const shm::DirectPair*>(segments_.region(group, i) + shm::kPairsOffset);
    for (std::uint32_t k = 0; k < segments_.member_count(group); ++k) {
      use(peek(&pairs[k].sent.position));
      use(peek(&pairs[k].received) >> 1);
    }
  }
  return highest;
}

// The fence makes visible every arrival of a member that did not see the end. A member that had begun before
// the end may still arrive at one more position, which stays below the new base.
void GroupEpochs::end(GroupId group, const scheduler::CausePtr& cause, scheduler::Epochs::Why why) {
  GroupState& state = groups_[group.value];
  const std::uint64_t ended = state.epochs.present();
  if (!state.epochs.end(cause, why)) return;
  const bool loss = why == scheduler::Epochs::Why::kLoss;
  shm::GroupLine* words = segments_.line(group);
  shm::EndedEpoch& record = words->ended[state.used % shm::kEpochsKept];
  Published<std::uint64_t>(&record.epoch).store_ordered(0);
  Published<std::uint64_t>(&record.met).store_ordered(loss ? shm::kMetUncounted : 0);
  Published<std::uint64_t>(&record.epoch).store_ordered(ended);
  Published<std::uint64_t>(&words->epoch).store_ordered(state.epochs.present());
  shm::heavy_fence();
  const std::uint64_t all = loss ? count_met(group) : 0;
  if (all > state.base && all <= state.base + kPositionsMax) state.met = all;
  // The first arrival of the new epoch must use another slot than the last position that all had met at, in
  // any epoch: a member may still read that slot.
  const std::uint64_t highest = highest_position(group);
  if (highest > state.base) ++state.used;
  state.base = highest + 1;
  if ((state.base & 1) != (state.met & 1)) ++state.base;
  Published<std::uint64_t>(&record.met).store_ordered(all);
}

void GroupEpochs::set_absence(GroupId group, scheduler::CausePtr cause) {
  const auto code = cause != nullptr ? static_cast<std::int32_t>(cause->code) : 0;
  groups_[group.value].absence = std::move(cause);
  Published<std::int32_t>(&segments_.line(group)->absence).store_ordered(code);
}

scheduler::CausePtr GroupEpochs::cause_of(GroupId group, std::uint64_t epoch) const {
  const GroupState& state = groups_[group.value];
  // A client may ask about an epoch before the group's first, or a future one.
  if (epoch < state.first_epoch || epoch > state.epochs.present()) return nullptr;
  return state.epochs.has_ended(epoch) ? state.epochs.cause_of(epoch) : state.absence;
}

// The client reports the epoch in which it is. It knows already the end of one that it has left before.
std::uint64_t GroupEpochs::move_on(GroupId group, std::uint32_t index, std::uint64_t epoch) {
  GroupState& state = groups_[group.value];
  scheduler::Epochs::Member& stands = state.members[index];
  if (epoch == stands.epoch() && state.epochs.has_ended(epoch))
    stands.move_on(state.epochs, state.epochs.cause_of(epoch)->fault);
  return stands.epoch();
}

}  // namespace muster::engine
