#include "daemon/cli/top_command.hpp"

#include "api/base/words.hpp"
#include "daemon/cli/attention.hpp"
#include "daemon/config/table.hpp"

#include <algorithm>

#include <unistd.h>

namespace muster::cli {
namespace {

using shm::GroupCount;
using shm::JobCountersReader;
using shm::RankCount;

// The engine writes ten times a second.
constexpr double kSilentSeconds = 1;

double seconds_of(Nanos span) {
  return std::chrono::duration<double>(span).count();
}

// A rank's new client counts from 0 again.
template<class Count>
std::uint64_t grown(const std::array<std::uint64_t, shm::kTallyValuesMax>& before,
                    const std::array<std::uint64_t, shm::kTallyValuesMax>& after, Count count) {
  const auto i = static_cast<std::size_t>(count);
  return after[i] >= before[i] ? after[i] - before[i] : after[i];
}

// A group's counts are sums over attached members: they fall when a member leaves, which is no growth.
std::uint64_t group_grown(const std::array<std::uint64_t, shm::kTallyValuesMax>& before,
                          const std::array<std::uint64_t, shm::kTallyValuesMax>& after, GroupCount count) {
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
Json lag_of(const std::array<std::uint64_t, shm::kTallyValuesMax>& rank, const Look& look) {
  const std::uint64_t group = now_at(rank, RankCount::kLagGroup);
  if (group == 0) return nullptr;
  const auto row = std::find_if(look.groups.begin(), look.groups.end(), [&](const shm::GroupRow& r) {
    return r.value(GroupCount::kMembers) > 0 && r.value(GroupCount::kId) == group - 1;
  });
  return {{"group", row != look.groups.end() ? Json(row->name) : Json(nullptr)},
          {"group_id", group - 1},
          {"median_ns", now_at(rank, RankCount::kLagNs)},
          {"others_ns", now_at(rank, RankCount::kLagOthersNs)}};
}

// What the rank's client says of its units; null: it has none.
Json units_of(const std::array<std::uint64_t, shm::kTallyValuesMax>& before,
              const std::array<std::uint64_t, shm::kTallyValuesMax>& after, const Pace& pace) {
  if (now_at(after, RankCount::kPlaceBytes) == 0) return nullptr;
  return {{"whole_bytes", now_at(after, RankCount::kWholeBytes)},
          {"place_bytes", now_at(after, RankCount::kPlaceBytes)},
          {"budget_bytes", now_at(after, RankCount::kWholeBudget)},
          {"prefetch", now_at(after, RankCount::kPrefetch)},
          {"prefetch_asked", now_at(after, RankCount::kPrefetchAsked)},
          {"demands_per_s", pace.of(grown(before, after, RankCount::kDemands))},
          {"skipped_per_s", pace.of(grown(before, after, RankCount::kPrefetchSkipped))}};
}

Json rank_rates(const Look& before, const Look& after, const Pace& pace) {
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
Json group_rates(const Look& before, const Look& after, const Pace& pace) {
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
                      {"ops_per_s", pace.of(group_grown(b, a, GroupCount::kOperations) +
                                            group_grown(b, a, GroupCount::kRuns))},
                      {"bytes_per_s", pace.of(group_grown(b, a, GroupCount::kBytes))},
                      {"exposed", pace.part(group_grown(b, a, GroupCount::kExposedNs) / members)},
                      {"busy", pace.part(group_grown(b, a, GroupCount::kBusyNs) / members)},
                      {"in_flight", now_at(a, GroupCount::kInFlight)},
                      {"failed", now_at(a, GroupCount::kFailures)},
                      {"late_messages", now_at(a, GroupCount::kLate)},
                      {"bulk_ahead_bytes", now_at(a, GroupCount::kBulkAhead)}});
  }
  return groups;
}

std::string percent(double part) {
  return fmt::format("{:.0f} %", part * 100);
}

std::string lag_text(const Json& rank) {
  const Json& lag = rank.at("lag");
  if (lag.is_null()) return "-";
  const double millis = lag.at("median_ns").get<double>() * 1e-6;
  return fmt::format("{:.{}f} ms{}", millis, millis < 10 ? 2 : 1, rank.at("late").get<bool>() ? " LATE" : "");
}

std::string rate(double value) {
  return value >= 1000 ? fmt::format("{:.1f}k", value / 1000) : fmt::format("{:.1f}", value);
}

// One line for each late rank.
std::string late_text(const Json& now) {
  std::string out;
  for (const Json& rank : now.at("ranks")) {
    const Json& lag = rank.at("lag");
    if (!rank.at("late").get<bool>() || lag.is_null()) continue;
    const auto groups = rank.at("late_in").get<std::uint64_t>();
    const Json& name = lag.at("group");
    out += fmt::format(
        "rank {} comes late to {}{}: median {:.1f} ms behind the first; the others {:.2f} ms\n",
        rank.at("rank").get<int>(),
        name.is_string() ? name.get<std::string>()
                         : fmt::format("group {}", lag.at("group_id").get<std::uint64_t>()),
        groups > 1 ? fmt::format(" (and {} more group{})", groups - 1, groups == 2 ? "" : "s") : "",
        lag.at("median_ns").get<double>() * 1e-6, lag.at("others_ns").get<double>() * 1e-6);
  }
  return out;
}

// A line for each rank with units. A prefetch that the budget makes shallower says so.
std::string units_text(const Json& now, std::size_t columns) {
  std::vector<config::Cells> rows;
  for (const Json& rank : now.at("ranks")) {
    const Json& units = rank.at("units");
    if (units.is_null()) continue;
    const auto number = [&](const char* key) { return units.at(key).get<std::uint64_t>(); };
    const std::uint64_t budget = number("budget_bytes");
    rows.push_back({fmt::format("{}", rank.at("rank").get<int>()), bytes_text(number("whole_bytes")),
                    bytes_text(number("place_bytes")), budget == 0 ? "-" : bytes_text(budget),
                    number("prefetch") < number("prefetch_asked")
                        ? fmt::format("{} of {}", number("prefetch"), number("prefetch_asked"))
                        : fmt::format("{}", number("prefetch")),
                    rate(units.at("demands_per_s").get<double>()),
                    rate(units.at("skipped_per_s").get<double>()),
                    percent(rank.at("exposed").get<double>())});
  }
  if (rows.empty()) return "";
  return config::table(
      {"UNITS OF", "UNSHARDED", "AT MOST", "BUDGET", "PREFETCH", "ON DEMAND/S", "NO ROOM/S", "STALLED"}, rows,
      {columns, {"NO ROOM/S", "AT MOST"}});
}

int show(const std::string& job, const Json& now, Output output, bool clear) {
  if (output == Output::kJson) return print_json(now);
  if (clear) std::fputs("\x1b[H\x1b[J", stdout);
  return print_text(top_text(job, now, config::screen_columns()));
}

// Whether a silent engine has ended, and is not just stuck: the counters outlive the engine.
std::optional<Trouble> ended(const DaemonAddress& address, const std::string& job, int engine,
                             Attention& attention) {
  const auto now = ask(address, {{"command", "counters"}, {"job", job}}, &attention);
  if (!now && now.error().code == Code::kWaitInterrupted) return now.error();
  if (now && now->result.at("engine_pid") != engine)
    return Trouble{kNoObject, fmt::format("job {} has ended, and there is another by that name", job)};
  if (!now && now.error().exit_code == kNoObject)
    return Trouble{kNoObject, fmt::format("job {} has ended", job)};
  return std::nullopt;
}

int watch(const DaemonAddress& address, const JobCountersReader& counters, const std::string& job,
          const TopOptions& options, Output output, bool screen, Attention& attention) {
  const SteadyClock clock;
  const auto interval = Nanos(static_cast<std::int64_t>(options.seconds * 1e9));
  Look before = look_at(counters, clock.now());
  while (true) {
    if (attention.wait(-1, later(clock.now(), interval), clock) == Attention::Came::kUserEnds)
      return attention.exit_code();
    Look after = look_at(counters, clock.now());
    Json now = rates(counters, before, after);
    now["job"] = job;
    if (!options.once && now.at("engine_stuck").get<bool>())
      if (const auto end = ended(address, job, counters.engine_pid(), attention)) return complain(*end);
    const int shown = show(job, now, output, screen);
    if (options.once || shown != kOk) return shown;
    before = std::move(after);
  }
}

}  // namespace

Look look_at(const JobCountersReader& counters, Instant now) {
  Look look;
  look.at = now;
  look.beat = counters.beat();
  look.ranks.resize(counters.ranks());
  for (std::uint32_t rank = 0; rank < counters.ranks(); ++rank)
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(RankCount::kCount); ++i)
      look.ranks[rank][i] = counters.value(rank, static_cast<RankCount>(i));
  look.groups.resize(counters.groups());
  for (std::uint32_t group = 0; group < counters.groups(); ++group)
    if (auto row = counters.row(group)) look.groups[group] = *std::move(row);
  return look;
}

// Over the engine's own time: a stuck engine shows no rates instead of low ones.
Json rates(const JobCountersReader& counters, const Look& before, const Look& after) {
  const Pace pace{seconds_of(after.beat - before.beat)};
  const double silent = std::max(0.0, seconds_of(after.at - after.beat));
  return {{"interval_s", pace.seconds},
          {"engine_pid", counters.engine_pid()},
          {"engine_silent_s", silent},
          {"engine_stuck", silent >= kSilentSeconds},
          {"ranks", rank_rates(before, after, pace)},
          {"groups", group_rates(before, after, pace)}};
}

std::string top_text(const std::string& job, const Json& now, std::size_t columns) {
  std::string out = fmt::format("job {}   engine {}", job, now.at("engine_pid").get<int>());
  if (now.at("engine_stuck").get<bool>())
    out += fmt::format(", SILENT for {:.1f} s: what follows is the last of it",
                       now.at("engine_silent_s").get<double>());
  out += "\n";
  std::vector<config::Cells> rows;
  for (const Json& rank : now.at("ranks")) {
    if (!rank.at("attached").get<bool>()) {
      rows.push_back(
          {fmt::format("{}", rank.at("rank").get<int>()), "-", "-", "-", "-", "-", "-", "-", "not attached"});
      continue;
    }
    rows.push_back({fmt::format("{}", rank.at("rank").get<int>()),
                    fmt::format("{}", rank.at("pid").get<int>()), rate(rank.at("ops_per_s").get<double>()),
                    bytes_text(static_cast<std::uint64_t>(rank.at("bytes_per_s").get<double>())) + "/s",
                    percent(rank.at("exposed").get<double>()), percent(rank.at("compute").get<double>()),
                    fmt::format("{}", rank.at("in_flight").get<std::uint64_t>()), lag_text(rank),
                    bytes_text(rank.at("buffer_bytes").get<std::uint64_t>())});
  }
  out +=
      config::table({"RANK", "PID", "OPS/S", "BYTES/S", "EXPOSED", "COMPUTE", "IN FLIGHT", "LAG", "MEMORY"},
                    rows, {columns, {"PID", "COMPUTE", "IN FLIGHT"}});
  out += late_text(now);
  out += units_text(now, columns);
  rows.clear();
  for (const Json& group : now.at("groups"))
    rows.push_back({fmt::format("{} {}", group.at("id").get<int>(), group.at("group").get<std::string>()),
                    fmt::format("{}", group.at("ranks").get<std::uint64_t>()),
                    rate(group.at("ops_per_s").get<double>()),
                    bytes_text(static_cast<std::uint64_t>(group.at("bytes_per_s").get<double>())) + "/s",
                    percent(group.at("exposed").get<double>()), percent(group.at("busy").get<double>()),
                    fmt::format("{}", group.at("in_flight").get<std::uint64_t>()),
                    fmt::format("{}", group.at("failed").get<std::uint64_t>())});
  return out + config::table({"GROUP", "RANKS", "OPS/S", "BYTES/S", "EXPOSED", "BUSY", "IN FLIGHT", "FAILED"},
                             rows, {columns, {"BUSY", "IN FLIGHT", "RANKS"}});
}

int run_top(const DaemonAddress& address, const std::string& job, const TopOptions& options, Output output) {
  // Keys only with a terminal as output: a closed pipe would end this program with the terminal changed.
  const bool screen = !options.once && ::isatty(STDOUT_FILENO) == 1;
  Attention attention(screen ? Keys::kHeard : Keys::kIgnored);
  try {
    const auto answer = ask(address, {{"command", "counters"}, {"job", job}}, &attention);
    if (!answer) return complain(answer.error());
    if (answer->descriptors.size() != 1) return complain({kFailed, "the daemon sent no counters"});
    const auto counters = JobCountersReader::attach(answer->descriptors.front());
    if (!counters) return complain(trouble_of(counters.error()));
    return watch(address, *counters, job, options, output, screen, attention);
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain({kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())});
  }
}

}  // namespace muster::cli
