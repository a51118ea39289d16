#include "daemon/cli/merge/top_rates.hpp"

#include <algorithm>
#include <cstdint>

namespace muster::cli {
namespace {

using control::JobLook;
using shm::GroupCount;
using shm::RankCount;

// The engine writes ten times a second.
constexpr double kSilentSeconds = 1;
// GroupCount::kRow of a row that has had one group from the start, as those of the mesh have.
constexpr std::uint64_t kRowOfMesh = 2;

double seconds_of(Nanos span) {
  return std::chrono::duration<double>(span).count();
}

// A rank's new client counts from 0 again.
template<class Count>
std::uint64_t grown(const JobLook::Tallies& before, const JobLook::Tallies& after, Count count) {
  const auto i = static_cast<std::size_t>(count);
  return after[i] >= before[i] ? after[i] - before[i] : after[i];
}

// A group's counts are sums over attached members: they fall when a member leaves, which is no growth.
std::uint64_t group_grown(const JobLook::Tallies& before, const JobLook::Tallies& after, GroupCount count) {
  const auto i = static_cast<std::size_t>(count);
  return after[i] >= before[i] ? after[i] - before[i] : 0;
}

struct Pace {
  double seconds = 0;  // 0: nothing was written between the looks
  double of(std::uint64_t amount) const { return seconds > 0 ? static_cast<double>(amount) / seconds : 0; }
  double part(std::uint64_t nanos) const { return std::min(1.0, of(nanos) * 1e-9); }
};

template<class Tally, class Count>
std::uint64_t now_at(const Tally& tally, Count count) {
  return tally[static_cast<std::size_t>(count)];
}

// The lag in the rank's worst group; null: too few operations with others.
Json lag_of(const JobLook::Tallies& rank, const JobLook& look) {
  const std::uint64_t group = now_at(rank, RankCount::kLagGroup);
  if (group == 0) return nullptr;
  const auto row =
      std::find_if(look.groups.begin(), look.groups.end(), [&](const shm::JobCountersReader::GroupRow& r) {
        return r.value(GroupCount::kMembers) > 0 && r.value(GroupCount::kId) == group - 1;
      });
  return {{"group", row != look.groups.end() ? Json(row->name) : Json(nullptr)},
          {"group_id", group - 1},
          {"median_ns", now_at(rank, RankCount::kLagNs)},
          {"others_ns", now_at(rank, RankCount::kLagOthersNs)}};
}

// The figures of the rank's units, as its client reports them; null: it has no units.
Json units_of(const JobLook::Tallies& before, const JobLook::Tallies& after, const Pace& pace) {
  // The counts of a session that has ended stay until the next one of its rank.
  if (now_at(after, RankCount::kPlaceBytes) == 0 || now_at(after, RankCount::kAttached) == 0) return nullptr;
  return {{"whole_bytes", now_at(after, RankCount::kWholeBytes)},
          {"place_bytes", now_at(after, RankCount::kPlaceBytes)},
          {"budget_bytes", now_at(after, RankCount::kWholeBudget)},
          {"prefetch", now_at(after, RankCount::kPrefetch)},
          {"prefetch_asked", now_at(after, RankCount::kPrefetchAsked)},
          {"demands_per_s", pace.of(grown(before, after, RankCount::kDemands))},
          {"skipped_per_s", pace.of(grown(before, after, RankCount::kPrefetchSkipped))}};
}

Json rank_rates(const JobLook& before, const JobLook& after, const Pace& pace) {
  Json ranks = Json::array();
  for (std::size_t row = 0; row < after.ranks.size(); ++row) {
    const auto& b = before.ranks[row];
    const auto& a = after.ranks[row];
    ranks.push_back(
        {{"rank", now_at(a, RankCount::kRank)},
         {"attached", now_at(a, RankCount::kAttached) != 0},
         {"pid", now_at(a, RankCount::kPid)},
         {"ops_per_s", pace.of(grown(b, a, RankCount::kStepsCompleted) + grown(b, a, RankCount::kRuns))},
         {"bytes_per_s", pace.of(grown(b, a, RankCount::kBytesMoved) + grown(b, a, RankCount::kRunBytes))},
         {"exposed", pace.part(grown(b, a, RankCount::kExposedNs))},
         {"compute", pace.part(grown(b, a, RankCount::kComputeBusyNs))},
         {"in_flight", now_at(a, RankCount::kInFlight)},
         {"late", now_at(a, RankCount::kLateIn) > 0},
         {"late_in", now_at(a, RankCount::kLateIn)},
         {"lag", lag_of(a, after)},
         {"failed", now_at(a, RankCount::kStepsFailed)},
         {"buffer_bytes", now_at(a, RankCount::kBufferBytes)},
         {"units", units_of(b, a, pace)}});
  }
  return ranks;
}

// A row that got another group since the last look has no rates yet: some counts of its members are older
// than the row.
Json group_rates(const JobLook& before, const JobLook& after, const Pace& pace) {
  Json groups = Json::array();
  for (std::size_t row = 0; row < after.groups.size(); ++row) {
    const bool same = before.groups[row].value(GroupCount::kRow) == after.groups[row].value(GroupCount::kRow);
    const auto& a = after.groups[row].values;
    const auto& b = same ? before.groups[row].values : a;
    const std::uint64_t members = now_at(a, GroupCount::kMembers);
    if (members == 0) continue;
    groups.push_back({{"group", after.groups[row].name},
                      {"id", now_at(a, GroupCount::kId)},
                      {"ranks", members},
                      {"made", after.groups[row].value(GroupCount::kRow) > kRowOfMesh},
                      {"ops_per_s", pace.of(group_grown(b, a, GroupCount::kOperations) +
                                            group_grown(b, a, GroupCount::kRuns))},
                      {"bytes_per_s", pace.of(group_grown(b, a, GroupCount::kBytes))},
                      {"exposed", pace.part(group_grown(b, a, GroupCount::kExposedNs) / members)},
                      {"busy", pace.part(group_grown(b, a, GroupCount::kBusyNs) / members)},
                      {"in_flight", now_at(a, GroupCount::kInFlight)},
                      {"failed", now_at(a, GroupCount::kFailures)},
                      {"late_messages", now_at(a, GroupCount::kLate)},
                      {"bulk_ahead_bytes", now_at(a, GroupCount::kBulkAhead)},
                      {"sent_bytes", now_at(a, GroupCount::kSentBytes)}});
  }
  return groups;
}

}  // namespace

// Over the engine's own time: a stuck engine shows no rates instead of low ones.
Json rates(const JobLook& before, const JobLook& after) {
  const Pace pace{seconds_of(after.beat - before.beat)};
  const double silent = std::max(0.0, seconds_of(after.at - after.beat));
  return {{"interval_s", pace.seconds},
          {"engine_pid", after.engine_pid},
          {"engine_silent_s", silent},
          {"engine_stuck", silent >= kSilentSeconds},
          {"ranks", rank_rates(before, after, pace)},
          {"groups", group_rates(before, after, pace)}};
}

}  // namespace muster::cli
