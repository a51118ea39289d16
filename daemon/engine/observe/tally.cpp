#include "daemon/engine/observe/tally.hpp"

#include "api/shm/untrusted.hpp"

#include <algorithm>
#include <string>

namespace muster::engine {

using shm::Counter;
using shm::GroupCount;
using shm::RankCount;

Result<Tally> Tally::create(const World& world, std::span<const scheduler::Group> groups, Places places,
                            std::uint64_t epoch, const std::shared_ptr<MemoryAccount>& account) {
  std::vector<std::string> names;
  for (const scheduler::Group& group : groups) names.push_back(group.name);
  names.resize(groups.size() + std::min(places.made_max, kMadeRowsMax));
  const std::uint64_t bytes =
      shm::job_counters_bytes(world.local_count(), static_cast<std::uint32_t>(names.size()));
  MUSTER_ASSIGN_OR_RETURN(MemoryCharge charge, MemoryAccount::charge(account, bytes));
  MUSTER_ASSIGN_OR_RETURN(auto writer,
                          shm::JobCountersWriter::create(world, names, epoch, shm::memory_headroom()));
  Tally tally(world, std::move(writer), std::move(charge));
  tally.groups_.resize(names.size());
  tally.seen_.resize(names.size());
  tally.mesh_groups_ = static_cast<std::uint32_t>(groups.size());
  tally.first_made_ = places.first_made;
  tally.made_rows_.resize(places.made_max);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    tally.groups_[g].id = GroupId(g);
    tally.groups_[g].members = groups[g].ranks;
  }
  return tally;
}

std::optional<std::uint32_t> Tally::row_of(GroupId group) const {
  if (group.value < mesh_groups_) return group.value;
  if (group.value < first_made_) return std::nullopt;  // a rank alone
  return made_rows_[group.value - first_made_];
}

Tally::GroupState* Tally::group_of(const scheduler::Plan& plan) {
  const scheduler::CollectiveWork* work = plan.collective();
  const auto row = work != nullptr ? row_of(work->group) : std::nullopt;
  return row ? &groups_[*row] : nullptr;
}

void Tally::set_group(GroupId group, const scheduler::Group& now) {
  std::optional<std::uint32_t>& row = made_rows_[group.value - first_made_];
  if (!row && !now.ranks.empty()) {
    const auto vacant = std::find_if(groups_.begin() + mesh_groups_, groups_.end(),
                                     [](const GroupState& state) { return state.members.empty(); });
    if (vacant != groups_.end()) row = static_cast<std::uint32_t>(vacant - groups_.begin());
  }
  if (!row) return;
  groups_[*row] = GroupState{};
  groups_[*row].id = group;
  groups_[*row].members = now.ranks;
  writer_.give_row(*row, now.name);
  if (now.ranks.empty()) row.reset();
}

void Tally::name_group(GroupId group, std::string_view name) {
  if (const auto row = row_of(group)) writer_.give_row(*row, name);
}

void Tally::submitted(Rank rank, const scheduler::Plan& plan) {
  ++ranks_[rank].in_flight;
  if (GroupState* group = group_of(plan)) ++group->in_flight;
}

void Tally::retired(Rank rank, const scheduler::Plan& plan, bool well, Nanos busy) {
  --ranks_[rank].in_flight;
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

void Tally::write(std::span<const Counted> ranks, const DirectPages* direct_pages,
                  const StragglerStatistics& stragglers, Instant now) {
  next_ = now + kPeriod;
  for (std::uint32_t local = 0; local < ranks.size(); ++local) {
    const Rank rank = ranks_.world().rank_of(LocalRank(local));
    write_rank(rank, ranks[local], direct_pages, stragglers);
    if (direct_pages != nullptr) share_out_runs(rank, *direct_pages);
  }
  for (std::uint32_t row = 0; row < groups_.size(); ++row)
    if (!groups_[row].members.empty()) write_group(row, ranks, direct_pages);
  writer_.beat(now);
}

// A rank counts the bytes of all its operations, whatever the group, so no operation pays for more. Its
// records name the groups; if operations come faster than they are read, a sample decides.
void Tally::share_out_runs(Rank rank, const DirectPages& direct_pages) {
  RankState& state = ranks_[rank];
  const std::uint64_t bytes = direct_pages.records().counted(rank).bytes_moved;
  const std::uint64_t latest = direct_pages.records().recorded(rank);
  if (bytes < state.run_bytes || latest < state.read) state.run_bytes = state.read = 0;  // of a new client
  const auto grown = static_cast<double>(bytes - state.run_bytes);
  if (grown == 0) return;
  if (grown > 0x1p60) {  // impossible, so a lie
    state.run_bytes = bytes;
    return;
  }
  const auto looks = std::clamp<std::uint64_t>(kRecordsALook / ranks_.size(), 1, shm::kDirectRecords / 2);
  std::fill(seen_.begin(), seen_.end(), 0);
  double all = 0;
  std::uint64_t index = std::max(state.read, latest - std::min(latest, looks));
  for (; index < latest; ++index) {
    const auto flight = direct_pages.records().flight(rank, index + 1);
    if (flight && flight->state == shm::DirectRecord::State::kOpen && index + 1 == latest)
      break;  // counts later
    if (!flight || flight->state == shm::DirectRecord::State::kBadly) continue;
    all += static_cast<double>(flight->target_bytes);
    if (const auto row = row_of(flight->group)) seen_[*row] += flight->target_bytes;
  }
  if (all == 0) return;
  state.run_bytes = bytes;
  state.read = index;
  for (std::size_t row = 0; row < seen_.size(); ++row)
    groups_[row].bytes += static_cast<std::uint64_t>(grown / all * static_cast<double>(seen_[row]));
}

void Tally::write_rank(Rank rank, const Counted& counted, const DirectPages* direct_pages,
                       const StragglerStatistics& stragglers) {
  const std::uint32_t row = ranks_.world().local(rank).value;
  const auto set = [&](RankCount count, std::uint64_t value) { writer_.set(row, count, value); };
  const Session* session = counted.session;
  set(RankCount::kAttached, session != nullptr ? 1 : 0);
  set(RankCount::kInFlight, session != nullptr ? ranks_[rank].in_flight : 0);
  const StragglerStatistics::Worst& worst = stragglers.worst(rank);
  const auto lag = worst.group ? stragglers.figures(*worst.group, rank) : blame::Straggler{};
  set(RankCount::kLateIn, worst.late_in);
  set(RankCount::kLagNs, static_cast<std::uint64_t>(lag.median.count()));
  set(RankCount::kLagOthersNs, worst.late_in > 0 ? static_cast<std::uint64_t>(lag.others.count()) : 0);
  set(RankCount::kLagGroup, worst.group ? std::uint64_t{worst.group->value} + 1 : 0);
  if (direct_pages != nullptr) {
    const DirectRecords::Counted own = direct_pages->records().counted(rank);
    set(RankCount::kRuns, own.operations);
    set(RankCount::kRunBytes, own.bytes_moved);
  }
  if (session == nullptr) return;
  // Trusted: the page is sealed, so only the engine can write it.
  const shm::CounterReader own(session->page().page());
  set(RankCount::kPid, static_cast<std::uint64_t>(session->options().pid));
  set(RankCount::kStepsCompleted, own.value(Counter::kStepsCompleted));
  set(RankCount::kStepsFailed, own.value(Counter::kStepsFailed));
  set(RankCount::kBytesMoved, own.value(Counter::kBytesMoved));
  set(RankCount::kComputeBusyNs, own.value(Counter::kComputeBusyNs));
  set(RankCount::kCommBusyNs, own.value(Counter::kCommBusyNs));
  set(RankCount::kBufferBytes, own.value(Counter::kBufferBytes));
  set(RankCount::kExposedNs, static_cast<std::uint64_t>(counted.exposed.count()));
  const shm::UnitFigures& units = session->submission().header()->units;
  const auto show = [&](RankCount count, const std::uint64_t& said) {
    set(count, shm::Untrusted<std::uint64_t>(&said).load());  // the client's own word, which is only shown
  };
  show(RankCount::kWholeBytes, units.whole_bytes);
  show(RankCount::kPlaceBytes, units.place_bytes);
  show(RankCount::kWholeBudget, units.budget_bytes);
  show(RankCount::kPrefetch, units.prefetch);
  show(RankCount::kPrefetchAsked, units.prefetch_asked);
  show(RankCount::kDemands, units.demands);
  show(RankCount::kPrefetchSkipped, units.skipped);
}

void Tally::write_group(std::uint32_t row, std::span<const Counted> ranks, const DirectPages* direct_pages) {
  GroupState& group = groups_[row];
  if (direct_pages != nullptr) {
    const auto [epoch, number] = direct_pages->records().progress(group.id);
    if (epoch != group.epoch) group.number = 0;
    group.epoch = epoch;
    if (number > group.number) group.runs += number - group.number;
    group.number = number;
  }
  const auto set = [&](GroupCount count, std::uint64_t value) { writer_.set(row, count, value); };
  std::uint64_t exposed = 0;
  const World& world = ranks_.world();
  for (const Rank rank : group.members)
    if (world.is_local(rank))
      exposed += static_cast<std::uint64_t>(ranks[world.local(rank).value].exposed.count());
  set(GroupCount::kMembers, group.members.size());
  set(GroupCount::kId, group.id.value);
  set(GroupCount::kExposedNs, exposed);
  set(GroupCount::kOperations, group.operations);
  set(GroupCount::kFailures, group.failures);
  set(GroupCount::kBytes, group.bytes);
  set(GroupCount::kBusyNs, group.busy);
  set(GroupCount::kInFlight, group.in_flight);
  set(GroupCount::kRuns, group.runs);
  set(GroupCount::kLate, group.traffic.late_messages);
  set(GroupCount::kBulkAhead, group.traffic.bulk_ahead);
  set(GroupCount::kSentBytes, group.traffic.sent_bytes);
}

void Tally::set_traffic(GroupId group, transport::Communicator::Traffic traffic) {
  if (const auto row = row_of(group)) groups_[*row].traffic = traffic;
}

}  // namespace muster::engine
