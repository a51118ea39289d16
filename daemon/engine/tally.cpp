#include "daemon/engine/tally.hpp"

#include <string>

namespace muster::engine {

using shm::Counter;
using shm::GroupCount;
using shm::RankCount;

Result<Tally> Tally::create(std::uint32_t world, std::span<const scheduler::Group> groups,
                            std::uint64_t epoch) {
  std::vector<std::string> names;
  for (const scheduler::Group& group : groups) names.push_back(group.name);
  MUSTER_ASSIGN_OR_RETURN(auto writer,
                          shm::JobCountersWriter::create(world, names, epoch, shm::memory_headroom()));
  Tally tally(std::move(writer));
  tally.ranks_.resize(world);
  for (const scheduler::Group& group : groups) {
    tally.groups_.emplace_back();
    tally.groups_.back().members = group.ranks;
  }
  return tally;
}

Tally::GroupState* Tally::group_of(const scheduler::Plan& plan) {
  const scheduler::CollectiveWork* work = plan.collective();
  if (work == nullptr || work->group.value >= groups_.size()) return nullptr;
  return &groups_[work->group.value];
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

void Tally::write(std::span<const Counted> ranks, const Board* board, Instant now) {
  next_ = now + kPeriod;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const auto set = [&](RankCount count, std::uint64_t value) { writer_.set(rank, count, value); };
    const Session* session = ranks[rank].session;
    set(RankCount::kAttached, session != nullptr ? 1 : 0);
    set(RankCount::kInFlight, session != nullptr ? ranks_[rank].in_flight : 0);
    if (board != nullptr) {
      const Board::Counted counted = board->counted(Rank(rank));
      set(RankCount::kRuns, counted.operations);
      set(RankCount::kRunBytes, counted.bytes_moved);
    }
    if (session == nullptr) continue;
    // The page is this engine's to write, and sealed against everybody else.
    const shm::CounterReader own(session->page().page());
    set(RankCount::kPid, static_cast<std::uint64_t>(session->options().pid));
    set(RankCount::kStepsCompleted, own.value(Counter::kStepsCompleted));
    set(RankCount::kStepsFailed, own.value(Counter::kStepsFailed));
    set(RankCount::kBytesMoved, own.value(Counter::kBytesMoved));
    set(RankCount::kComputeBusyNs, own.value(Counter::kComputeBusyNs));
    set(RankCount::kCommBusyNs, own.value(Counter::kCommBusyNs));
    set(RankCount::kBufferBytes, own.value(Counter::kBufferBytes));
    set(RankCount::kExposedNs, static_cast<std::uint64_t>(ranks[rank].exposed.count()));
  }
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    GroupState& group = groups_[g];
    if (board != nullptr) {
      const auto [generation, number] = board->progress(GroupId(g));
      if (generation != group.generation) group.number = 0;
      group.generation = generation;
      if (number > group.number) group.runs += number - group.number;
      group.number = number;
    }
    const auto set = [&](GroupCount count, std::uint64_t value) { writer_.set(g, count, value); };
    std::uint64_t exposed = 0;
    for (const Rank rank : group.members)
      exposed += static_cast<std::uint64_t>(ranks[rank.value].exposed.count());
    set(GroupCount::kMembers, group.members.size());
    set(GroupCount::kExposedNs, exposed);
    set(GroupCount::kOperations, group.operations);
    set(GroupCount::kFailures, group.failures);
    set(GroupCount::kBytes, group.bytes);
    set(GroupCount::kBusyNs, group.busy);
    set(GroupCount::kInFlight, group.in_flight);
    set(GroupCount::kRuns, group.runs);
  }
  writer_.beat(now);
}

}  // namespace muster::engine
