#include "daemon/cli/top_command.hpp"

#include "api/base/words.hpp"
#include "daemon/cli/attention.hpp"
#include "daemon/cli/top_nodes.hpp"
#include "daemon/cli/top_rates.hpp"
#include "daemon/config/table.hpp"

#include <algorithm>

#include <unistd.h>

namespace muster::cli {
namespace {

using control::JobLook;
using control::look_at;
using shm::JobCountersReader;

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
          const TopOptions& options, Output output, bool screen, TopNodes* others, Attention& attention) {
  const SteadyClock clock;
  const auto interval = Nanos(static_cast<std::int64_t>(options.seconds * 1e9));
  JobLook before = look_at(counters, clock.now());
  // Questions to other nodes take their time, but no more of it than twice TopNodes::kPatience.
  const auto ended_by_user = [&] {
    return others != nullptr ? others->look(address, job, clock.now(), attention) : std::nullopt;
  };
  if (ended_by_user()) return attention.exit_code();
  while (true) {
    if (attention.wait(-1, later(clock.now(), interval), clock) == Attention::Came::kUserEnds)
      return attention.exit_code();
    if (ended_by_user()) return attention.exit_code();
    JobLook after = look_at(counters, clock.now());
    Json now = rates(before, after);
    if (others != nullptr) others->add_to(now);
    now["job"] = job;
    if (!options.once && now.at("engine_stuck").get<bool>())
      if (const auto end = ended(address, job, counters.engine_pid(), attention)) return complain(*end);
    const int shown = show(job, now, output, screen);
    if (options.once || shown != kOk) return shown;
    before = std::move(after);
  }
}

}  // namespace

std::string top_text(const std::string& job, const Json& now, std::size_t columns) {
  std::string out = fmt::format("job {}   engine {}", job, now.at("engine_pid").get<int>());
  if (now.at("engine_stuck").get<bool>())
    out += fmt::format(", SILENT for {:.1f} s: what follows is the last of it",
                       now.at("engine_silent_s").get<double>());
  out += "\n" + top_nodes_text(now);
  const bool several = now.contains("nodes");
  std::vector<config::Cells> rows;
  const auto add_row = [&](const Json& rank, config::Cells row) {
    if (several) row.insert(row.begin() + 1, rank.at("node").get<std::string>());
    rows.push_back(std::move(row));
  };
  for (const Json& rank : now.at("ranks")) {
    if (!rank.at("attached").get<bool>()) {
      add_row(rank, {fmt::format("{}", rank.at("rank").get<int>()), "-", "-", "-", "-", "-", "-", "-",
                     "not attached"});
      continue;
    }
    add_row(rank, {fmt::format("{}", rank.at("rank").get<int>()),
                   fmt::format("{}", rank.at("pid").get<int>()), rate(rank.at("ops_per_s").get<double>()),
                   bytes_text(static_cast<std::uint64_t>(rank.at("bytes_per_s").get<double>())) + "/s",
                   percent(rank.at("exposed").get<double>()), percent(rank.at("compute").get<double>()),
                   fmt::format("{}", rank.at("in_flight").get<std::uint64_t>()), lag_text(rank),
                   bytes_text(rank.at("buffer_bytes").get<std::uint64_t>())});
  }
  config::Cells titles{"RANK", "PID", "OPS/S", "BYTES/S", "EXPOSED", "COMPUTE", "IN FLIGHT", "LAG", "MEMORY"};
  if (several) titles.insert(titles.begin() + 1, "NODE");
  out += config::table(titles, rows, {columns, {"PID", "COMPUTE", "IN FLIGHT"}});
  out += late_text(now);
  out += units_text(now, columns);
  rows.clear();
  for (const Json& group : now.at("groups"))
    rows.push_back({fmt::format("{} {}{}", group.at("id").get<int>(), group.at("group").get<std::string>(),
                                group.contains("node") ? " on " + group.at("node").get<std::string>() : ""),
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
    std::optional<TopNodes> others;  // of a job of one node there are none
    if (answer->result.contains("node"))
      others.emplace(answer->result.at("node").get<std::string>(),
                     options.once ? Nanos(0) : TopNodes::kPeriod);
    return watch(address, *counters, job, options, output, screen, others ? &*others : nullptr, attention);
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain({kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())});
  }
}

}  // namespace muster::cli
