#include "daemon/engine/observe/flight.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace muster::engine {

void FlightLog::attached(Rank rank) {
  RankLog& log = ranks_[rank];
  log.overwritten = false;
  log.lanes.resize(MUSTER_LANE_CLASSES);
  for (auto& lane : log.lanes) {
    lane.clear();
    lane.reserve(kEntriesPerLane);
  }
}

void FlightLog::expect_lane(Rank rank, std::uint32_t lane) {
  auto& lanes = ranks_[rank].lanes;
  if (lane < lanes.size()) return;
  lanes.resize(lane + 1);
  lanes[lane].reserve(kEntriesPerLane);
}

void FlightLog::expect(GroupId group, std::int32_t sender, std::int32_t receiver) {
  pairs_.try_emplace({group.value, static_cast<std::uint32_t>(sender), static_cast<std::uint32_t>(receiver)});
}

// A lane's entry lies at its point modulo the size. Kernels take points too, so a mixed lane keeps fewer.
void FlightLog::submitted(const scheduler::Request& request, Instant now) {
  const scheduler::CollectiveWork* work = request.plan->collective();
  if (work == nullptr) return;
  RankLog& log = ranks_[request.rank];
  auto& lane = log.lanes[request.lane];
  if (lane.empty()) lane.resize(kEntriesPerLane);
  FlightEntry& entry = lane[request.value % kEntriesPerLane];
  log.overwritten = log.overwritten || entry.value != 0;
  const std::uint64_t element = dtype_bytes(work->collective.dtype);
  entry = FlightEntry{};
  entry.value = request.value;
  entry.group = work->group.value;
  entry.lane = request.lane;
  entry.lane_id = request.lane_id;
  entry.op = work->collective.op;
  entry.dtype = work->collective.dtype;
  if (work->point_to_point()) {
    entry.sender = work->collective.root;
    entry.receiver = work->collective.receiver;
  }
  entry.uneven = !work->collective.counts.empty();
  entry.source_bytes = given_count(work->share) * element;
  entry.target_bytes = got_count(work->share) * element;
  entry.created = now;
  entry.timeout = request.timeout;
  work->site.copy(entry.site.data(), entry.site.size() - 1);
}

FlightEntry* FlightLog::find(Rank rank, std::uint32_t lane, std::uint64_t value) {
  auto& lanes = ranks_[rank].lanes;
  if (lane >= lanes.size() || lanes[lane].empty()) return nullptr;
  auto& entries = lanes[lane];
  FlightEntry& entry = entries[value % kEntriesPerLane];
  return entry.value == value ? &entry : nullptr;
}

FlightLog::Pair& FlightLog::pair_of(const FlightEntry& entry) {
  return pairs_[{entry.group, static_cast<std::uint32_t>(entry.sender),
                 static_cast<std::uint32_t>(entry.receiver)}];
}

std::uint64_t numbered_by_epoch(std::uint64_t epoch, std::uint64_t number) {
  return (epoch - 1) << 32 | (number & 0xffffffff);
}

void FlightLog::launched(const scheduler::Step& step, std::uint64_t number, Instant now) {
  bool numbered = false;
  for (const scheduler::Step::Part& part : step.parts) {
    FlightEntry* entry = find(part.rank, part.lane, part.value);
    if (entry == nullptr || part.waits) continue;
    if (entry->sender >= 0 && !std::exchange(numbered, true)) {
      Pair& pair = pair_of(*entry);
      pair.met += std::max(pair.fallen[0], pair.fallen[1]) + 1;
      pair.fallen = {};
      number = pair.met;
    }
    entry->state = FlightEntry::State::kStarted;
    entry->number = number;
    if (step.key.number != 0) entry->span_number = numbered_by_epoch(step.key.epoch, step.key.number);
    entry->started = now;
  }
}

void FlightLog::forget(GroupId group) {
  std::erase_if(pairs_, [&](const auto& pair) { return pair.first[0] == group.value; });
  for (RankLog& log : ranks_)
    for (auto& lane : log.lanes)
      for (FlightEntry& entry : lane)
        if (entry.value != 0 && entry.group == group.value) entry = FlightEntry{};
}

const FlightEntry* FlightLog::retired(Rank rank, std::uint32_t lane, std::uint64_t value, bool well,
                                      std::uint64_t number, Instant end) {
  FlightEntry* entry = find(rank, lane, value);
  if (entry == nullptr) return nullptr;
  if (well) {
    entry->state = FlightEntry::State::kCompleted;
    entry->completed = end;
    return entry;
  }
  failed(ranks_[rank], *entry, number);
  return entry->value == value ? entry : nullptr;
}

// Only the first unlaunched start of a channel or pair could have met others, so only it gets a number. Later
// ones are erased.
void FlightLog::failed(RankLog& log, FlightEntry& entry, std::uint64_t number) {
  const bool waited = entry.state == FlightEntry::State::kScheduled;
  entry.state = FlightEntry::State::kFailed;
  if (!waited) return;
  for (const FlightEntry& other : log.lanes[entry.lane]) {
    const bool here = other.value != 0 && other.value != entry.value && other.group == entry.group &&
                      other.lane_id == entry.lane_id && other.sender == entry.sender &&
                      other.receiver == entry.receiver;
    if (!here) continue;
    if (other.state == FlightEntry::State::kScheduled && other.value < entry.value) {
      entry = FlightEntry{};
      return;
    }
    number = std::max(number, other.number + 1);
  }
  if (entry.sender >= 0) {
    Pair& pair = pair_of(entry);
    const bool sent = entry.op == MUSTER_SEND;
    number = pair.met + ++pair.fallen[sent ? 0 : 1];
  }
  entry.number = number;
}

std::vector<FlightEntry> FlightLog::entries(Rank rank) const {
  std::vector<FlightEntry> all;
  for (const auto& lane : ranks_[rank].lanes)
    for (const FlightEntry& entry : lane)
      if (entry.value != 0) all.push_back(entry);
  std::stable_sort(all.begin(), all.end(), [](const FlightEntry& a, const FlightEntry& b) {
    return std::tie(a.created, a.lane, a.value) < std::tie(b.created, b.lane, b.value);
  });
  return all;
}

}  // namespace muster::engine
