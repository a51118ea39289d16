#include "daemon/engine/observe/straggler_statistics.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace muster::engine {

using blame::Straggler;
using blame::Stragglers;

// Reads fewer records than a rank keeps, so that the rank does not overwrite them meanwhile.
StragglerStatistics::StragglerStatistics(const World& world, std::uint32_t groups)
    : groups_(groups),
      worst_(world),
      read_(world),
      records_a_rank_(std::clamp(kRecordsALook / std::max(world.local_count(), 1u), kRecordsMin,
                                 shm::kDirectRecords * 3 / 4)) {
  sightings_.reserve(std::size_t{world.local_count()} * records_a_rank_);
  arrivals_.reserve(world.local_count());
}

void StragglerStatistics::set_group(GroupId group, std::span<const Rank> ranks) {
  GroupState& state = groups_[group.value];
  const bool known = state.lags && state.lags->operations() > 0;
  if (state.lags) std::erase(watched_, group.value);
  state = GroupState{};
  for (const Rank rank : ranks)  // what members on other nodes do is not seen here
    if (worst_.world().is_local(rank)) state.ranks.push_back(rank);
  if (known) find_worst();
}

void StragglerStatistics::expect(GroupId group) {
  GroupState& state = groups_[group.value];
  const std::size_t members = state.ranks.size();
  if (state.lags || members < 2) return;
  state.lags.emplace(static_cast<std::uint32_t>(members));
  state.round.seen.resize(members);
  state.round.arrivals.resize(members);
  watched_.push_back(group.value);
  bench_.each.reserve(Stragglers::kWindow * members);
  bench_.all.reserve(Stragglers::kWindow * members);
  changed_.reserve(members);
}

void StragglerStatistics::left(Rank rank, std::vector<Change>& changes) {
  read_[rank] = 0;
  for (const std::uint32_t g : watched_) {
    GroupState& state = groups_[g];
    if (std::find(state.ranks.begin(), state.ranks.end(), rank) == state.ranks.end()) continue;
    for (std::uint32_t i = 0; i < state.ranks.size(); ++i)
      if (state.lags->late(i)) changes.push_back({GroupId(g), state.ranks[i], false});
    state.lags->restart();
    state.round.lane.reset();
    state.round.latest = {};
    state.round.number = 0;
    state.over.reset();
  }
  find_worst();
}

void StragglerStatistics::met(const scheduler::Step& step) {
  const scheduler::CollectiveWork* work = step.parts.front().plan->collective();
  if (work == nullptr || work->point_to_point()) return;
  GroupState& state = groups_[work->group.value];
  if (!state.lags) return;
  if (step.active > 0) return note(state, step);
  arrivals_.clear();
  for (const scheduler::Step::Part& part : step.parts) arrivals_.push_back(part.arrived);
  state.lags->met(arrivals_);
}

void StragglerStatistics::note(GroupState& state, const scheduler::Step& step) {
  Round& here = state.round;
  const scheduler::Stamp stamp = step.parts.front().stamp;
  const LaneId lane = step.parts.front().lane_id;
  if (here.lane.value_or(lane) != lane) return;
  here.lane = lane;
  if (stamp.epoch > here.latest.epoch) {
    here.latest = {stamp.epoch, 0};
    here.number = 0;
  }
  if (here.number == 0 && stamp.number > here.latest.number) {
    here.number = stamp.number;
    here.left = state.ranks.size();
    std::fill(here.seen.begin(), here.seen.end(), 0);
  }
  here.latest.number = std::max(here.latest.number, stamp.number);
  if (stamp.number != here.number) return;
  for (const scheduler::Step::Part& part : step.parts) {
    const auto member = static_cast<std::size_t>(part.plan->collective()->index());
    if (std::exchange(here.seen[member], here.number) == here.number) continue;
    here.arrivals[member] = part.arrived;
    --here.left;
  }
  if (here.left > 0) return;
  state.lags->met(here.arrivals);
  here.number = 0;
}

void StragglerStatistics::look(const DirectPages* direct_pages, Instant now, std::vector<Change>& changes) {
  if (direct_pages != nullptr) {
    sightings_.clear();
    for (const Rank rank : read_.world().locals()) read(*direct_pages, rank, now);
    match();
  }
  for (const std::uint32_t g : watched_) {
    GroupState& state = groups_[g];
    changed_.clear();
    state.lags->judge(bench_, changed_);
    for (const std::uint32_t i : changed_)
      changes.push_back({GroupId(g), state.ranks[i], state.lags->late(i)});
  }
  find_worst();
}

// ---- the direct path -----------------------------------------------------------------------------

// Stops at a record that is later than now, for the next look.
void StragglerStatistics::read(const DirectPages& direct_pages, Rank rank, Instant now) {
  const std::uint64_t latest = direct_pages.records().recorded(rank);
  std::uint64_t& done = read_[rank];
  if (latest < done) done = 0;  // a new client counts anew, or the rank lies
  const std::uint64_t count = std::min<std::uint64_t>(latest - done, records_a_rank_);
  done = latest - count;
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto flight = direct_pages.records().flight(rank, done + 1);
    if (flight && flight->begun > now) return;
    ++done;
    if (!flight || is_transfer(flight->what.op)) continue;
    GroupState& state = groups_[flight->group.value];
    const std::uint64_t epoch = direct_pages.epochs().present(flight->group);
    if (state.epoch != epoch) {
      state.epoch = epoch;
      state.number = 0;
      state.over.reset();
    }
    if (!state.lags || flight->epoch != epoch || flight->number <= state.number) continue;
    sightings_.push_back({flight->group.value, flight->member, flight->number, flight->index, flight->begun});
  }
}

// An operation with a missing member is read again, until a later one of its group has been counted: the
// members may be on their way, or their records overwritten.
void StragglerStatistics::match() {
  std::sort(sightings_.begin(), sightings_.end(), [](const Sighting& a, const Sighting& b) {
    return std::tie(a.group, a.number, a.member) < std::tie(b.group, b.number, b.member);
  });
  for (auto begin = sightings_.begin(); begin != sightings_.end();) {
    const auto end = std::find_if(begin, sightings_.end(), [&](const Sighting& s) {
      return s.group != begin->group || s.number != begin->number;
    });
    const std::span<const Sighting> operation(begin, end);
    begin = end;
    if (all_of(operation)) {
      count(operation);
      continue;
    }
    for (const Sighting& s : operation) {
      std::uint64_t& done = read_[groups_[s.group].ranks[s.member]];
      done = std::min(done, s.index - 1);
    }
  }
}

// Whether each member is there once.
bool StragglerStatistics::all_of(std::span<const Sighting> operation) const {
  const std::size_t members = groups_[operation.front().group].ranks.size();
  if (operation.size() != members) return false;
  for (std::uint32_t i = 0; i < members; ++i)
    if (operation[i].member != i) return false;
  return true;
}

// No member can come to an operation before all have come to the one before. A member reads the clock after
// its arrival, so its time may be a little earlier, but by less than counts as late. The first operation of
// an epoch only sets the mark for the next: ranks come to it as they were started.
void StragglerStatistics::count(std::span<const Sighting> operation) {
  GroupState& state = groups_[operation.front().group];
  state.number = operation.front().number;
  arrivals_.clear();
  bool possible = state.over.has_value();
  Instant last{0};
  for (const Sighting& s : operation) {
    possible = possible && s.at >= *state.over - Stragglers::kFloor;
    last = std::max(last, s.at);
    arrivals_.push_back(s.at);
  }
  state.over = last;
  if (possible) state.lags->met(arrivals_);
}

// ---- answers -------------------------------------------------------------------------------------

void StragglerStatistics::find_worst() {
  std::fill(worst_.begin(), worst_.end(), Worst{});
  for (const std::uint32_t g : watched_) {
    const GroupState& state = groups_[g];
    if (state.lags->operations() == 0) continue;
    for (std::uint32_t i = 0; i < state.ranks.size(); ++i) {
      Worst& worst = worst_[state.ranks[i]];
      const bool late = state.lags->late(i);
      if (late) ++worst.late_in;
      bool worse = !worst.group;
      if (!worse) {
        const Stragglers& other = *groups_[worst.group->value].lags;
        worse = std::pair(late, state.lags->median(i)) >
                std::pair(other.late(worst.member), other.median(worst.member));
      }
      if (!worse) continue;
      worst.group = GroupId(g);
      worst.member = i;
    }
  }
}

Straggler StragglerStatistics::figures(GroupId group, Rank rank) const {
  const GroupState& state = groups_[group.value];
  Straggler figures;
  figures.rank = rank.value;
  figures.group = group.value;
  const auto at = std::find(state.ranks.begin(), state.ranks.end(), rank);
  if (!state.lags || at == state.ranks.end()) return figures;
  const auto member = static_cast<std::uint32_t>(at - state.ranks.begin());
  figures.median = state.lags->median(member);
  figures.others = state.lags->others(member);
  figures.operations = state.lags->operations();
  return figures;
}

std::vector<Straggler> StragglerStatistics::stragglers() const {
  std::vector<Straggler> all;
  for (const std::uint32_t g : watched_)
    for (Straggler& straggler : stragglers_of(GroupId(g))) all.push_back(std::move(straggler));
  return all;
}

std::vector<Straggler> StragglerStatistics::stragglers_of(GroupId group) const {
  const GroupState& state = groups_[group.value];
  std::vector<Straggler> late;
  for (std::uint32_t i = 0; state.lags && i < state.ranks.size(); ++i)
    if (state.lags->late(i)) late.push_back(figures(group, state.ranks[i]));
  return late;
}

}  // namespace muster::engine
