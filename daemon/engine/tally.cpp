#include "daemon/engine/tally.hpp"

#include <algorithm>
#include <string>

namespace muster::engine {

using shm::Counter;
using shm::GroupCount;
using shm::RankCount;

Result<Tally> Tally::create(std::uint32_t world, std::span<const scheduler::Group> groups, Places places,
                            std::uint64_t epoch, const std::shared_ptr<MemoryAccount>& account) {
  std::vector<std::string> names;
  for (const scheduler::Group& group : groups) names.push_back(group.name);
  names.resize(groups.size() + std::min(places.made_max, kMadeRowsMax));
  const std::uint64_t bytes = shm::job_counters_bytes(world, static_cast<std::uint32_t>(names.size()));
  MUSTER_ASSIGN_OR_RETURN(MemoryCharge charge, MemoryAccount::charge(account, bytes));
  MUSTER_ASSIGN_OR_RETURN(auto writer,
                          shm::JobCountersWriter::create(world, names, epoch, shm::memory_headroom()));
  Tally tally(std::move(writer), std::move(charge));
  tally.ranks_.resize(world);
  tally.groups_.resize(names.size());
  tally.mesh_groups_ = static_cast<std::uint32_t>(groups.size());
  tally.places_ = places;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    tally.groups_[g].id = GroupId(g);
    tally.groups_[g].members = groups[g].ranks;
  }
  return tally;
}

std::optional<std::uint32_t> Tally::row_of(GroupId group) const {
  if (group.value < mesh_groups_) return group.value;
  if (group.value < places_.first_made) return std::nullopt;  // a rank alone
  const std::uint64_t row = std::uint64_t{mesh_groups_} + group.value - places_.first_made;
  return row < groups_.size() ? std::optional(static_cast<std::uint32_t>(row)) : std::nullopt;
}

Tally::GroupState* Tally::group_of(const scheduler::Plan& plan) {
  const scheduler::CollectiveWork* work = plan.collective();
  const auto row = work != nullptr ? row_of(work->group) : std::nullopt;
  return row ? &groups_[*row] : nullptr;
}

void Tally::set_group(GroupId group, const scheduler::Group& now) {
  const auto row = row_of(group);
  if (!row) return;
  groups_[*row] = GroupState{};
  groups_[*row].id = group;
  groups_[*row].members = now.ranks;
  writer_.give_row(*row, now.name);
}

void Tally::submitted(Rank rank, const scheduler::Plan& plan) {
  ++ranks_[rank.value].in_flight;
  if (GroupState* group = group_of(plan)) ++group->in_flight;
}

void Tally::retired(Rank rank, const scheduler::Plan& plan, bool well, Nanos busy) {
  --ranks_[rank.value].in_flight;
  GroupState* group = group_of(plan);
  if (group == nullptr) return;
  --group->in_flight;
  if (!well) {
    ++group->failures;
    return;
  }
  const scheduler::CollectiveWork& work = *plan.collective();
  const std::int32_t counted = work.point_to_point() ? work.collective.root : 0;
  if (work.index() == counted) ++group->operations;
  group->bytes += plan.bytes;
  group->busy += static_cast<std::uint64_t>(busy.count());
}

void Tally::write(std::span<const Counted> ranks, const Board* board, const Lateness& lateness, Instant now) {
  next_ = now + kPeriod;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    write_rank(Rank(rank), ranks[rank], board, lateness);
  for (std::uint32_t row = 0; row < groups_.size(); ++row)
    if (!groups_[row].members.empty()) write_group(row, ranks, board);
  writer_.beat(now);
}

void Tally::write_rank(Rank rank, const Counted& counted, const Board* board, const Lateness& lateness) {
  const auto set = [&](RankCount count, std::uint64_t value) { writer_.set(rank.value, count, value); };
  const Session* session = counted.session;
  set(RankCount::kAttached, session != nullptr ? 1 : 0);
  set(RankCount::kInFlight, session != nullptr ? ranks_[rank.value].in_flight : 0);
  const Lateness::Worst& worst = lateness.worst(rank);
  const auto lag = worst.group ? lateness.figures(*worst.group, rank) : blame::Straggler{};
  set(RankCount::kLateIn, worst.late_in);
  set(RankCount::kLagNs, static_cast<std::uint64_t>(lag.median.count()));
  set(RankCount::kLagOthersNs, worst.late_in > 0 ? static_cast<std::uint64_t>(lag.others.count()) : 0);
  set(RankCount::kLagGroup, worst.group ? std::uint64_t{worst.group->value} + 1 : 0);
  if (board != nullptr) {
    const Board::Counted own = board->counted(rank);
    set(RankCount::kRuns, own.operations);
    set(RankCount::kRunBytes, own.bytes_moved);
  }
  if (session == nullptr) return;
  // The page is this engine's to write, and sealed against everybody else.
  const shm::CounterReader own(session->page().page());
  set(RankCount::kPid, static_cast<std::uint64_t>(session->options().pid));
  set(RankCount::kStepsCompleted, own.value(Counter::kStepsCompleted));
  set(RankCount::kStepsFailed, own.value(Counter::kStepsFailed));
  set(RankCount::kBytesMoved, own.value(Counter::kBytesMoved));
  set(RankCount::kComputeBusyNs, own.value(Counter::kComputeBusyNs));
  set(RankCount::kCommBusyNs, own.value(Counter::kCommBusyNs));
  set(RankCount::kBufferBytes, own.value(Counter::kBufferBytes));
  set(RankCount::kExposedNs, static_cast<std::uint64_t>(counted.exposed.count()));
}

void Tally::write_group(std::uint32_t row, std::span<const Counted> ranks, const Board* board) {
  GroupState& group = groups_[row];
  if (board != nullptr) {
    const auto [epoch, number] = board->progress(group.id);
    if (epoch != group.epoch) group.number = 0;
    group.epoch = epoch;
    if (number > group.number) group.runs += number - group.number;
    group.number = number;
  }
  const auto set = [&](GroupCount count, std::uint64_t value) { writer_.set(row, count, value); };
  std::uint64_t exposed = 0;
  for (const Rank rank : group.members)
    exposed += static_cast<std::uint64_t>(ranks[rank.value].exposed.count());
  set(GroupCount::kMembers, group.members.size());
  set(GroupCount::kId, group.id.value);
  set(GroupCount::kExposedNs, exposed);
  set(GroupCount::kOperations, group.operations);
  set(GroupCount::kFailures, group.failures);
  set(GroupCount::kBytes, group.bytes);
  set(GroupCount::kBusyNs, group.busy);
  set(GroupCount::kInFlight, group.in_flight);
  set(GroupCount::kRuns, group.runs);
}

}  // namespace muster::engine
