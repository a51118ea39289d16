#include "daemon/cli/ask/flight_table.hpp"

#include "api/base/words.hpp"
#include "daemon/config/table.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace muster::cli {
namespace {

// A direct operation's number has its epoch above these bits; reports call it by these alone.
constexpr std::uint64_t kInEpoch = 0xffffffff;

using Members = std::vector<std::uint32_t>;

// The entry of the record's rank.
const Json& entry_of(const Json& flight, const Json& record) {
  const std::string rank = std::to_string(record.at("rank").get<std::uint32_t>());
  for (const Json& entry : flight.at("ranks").at(rank).at("entries"))
    if (entry.at("record_id") == record.at("record_id")) return entry;
  return record;  // merging has made both, so there is one
}

struct WhoIsWhere {
  bool done = false;
  std::string text;
};

// The state of each rank in an operation, as one text.
WhoIsWhere who_is_where(const Json& flight, const Json& operation) {
  Members ready, running, failed;
  double ms = 0.0;
  for (const Json& record : operation.at("records")) {
    const auto rank = record.at("rank").get<std::uint32_t>();
    const Json& entry = entry_of(flight, record);
    if (record.at("state") == "completed") {
      ms = std::max(ms, entry.value("duration_ms", 0.0));
    } else if (entry.value("retired", false)) {
      failed.push_back(rank);
    } else {
      (record.at("state") == "started" ? running : ready).push_back(rank);
    }
  }
  const auto missing = operation.at("unrecorded").get<Members>();
  if (ready.empty() && running.empty() && failed.empty() && missing.empty())
    return {true, fmt::format("done, {:.2f} ms", ms)};
  std::string text;
  const auto add = [&](const char* what, const Members& ranks) {
    if (!ranks.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, rank_list(ranks));
  };
  add("failed at", failed);
  add("runs at", running);
  add("waits at", ready);
  add("not come", missing);
  return {false, text};
}

// "model.py:3", or the name of a unit.
std::string site_of(const Json& entry) {
  if (!entry.contains("frames") || entry.at("frames").empty()) return "-";
  const Json& frame = entry.at("frames").at(0);
  const auto line = frame.at("line").get<std::uint64_t>();
  const auto file = frame.at("filename").get<std::string>();
  return line == 0 ? file : fmt::format("{}:{}", file, line);
}

std::string size_of(const Json& entry) {
  if (!entry.contains("output_sizes") || entry.at("output_sizes").empty()) return "-";
  std::uint64_t elements = 1;
  for (const Json& dim : entry.at("output_sizes").at(0)) elements *= dim.get<std::uint64_t>();
  const Json& types = entry.at("output_dtypes");
  return fmt::format("{} {}", elements, types.empty() ? "" : types.at(0).get<std::string>());
}

// "gather/model" of "3:gather/model": what stands before is the group's number.
std::string lane_of(const std::string& process_group) {
  const std::size_t colon = process_group.find(':');
  return colon == std::string::npos ? process_group : process_group.substr(colon + 1);
}

std::string name_of(const Json& operation) {
  const auto name = operation.at("name").get<std::string>();
  return name.starts_with("nccl:") ? name.substr(5) : name;
}

}  // namespace

std::string flight_table(const Json& flight, std::size_t most, std::size_t columns) {
  const Json& operations = flight.at("operations");
  std::vector<WhoIsWhere> states;
  for (const Json& operation : operations) states.push_back(who_is_where(flight, operation));
  const auto done = static_cast<std::size_t>(
      std::count_if(states.begin(), states.end(), [](const WhoIsWhere& state) { return state.done; }));
  const std::size_t open = states.size() - done;
  std::size_t done_before = 0;
  std::size_t open_before = 0;
  std::vector<config::Cells> rows;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const bool shown = states[i].done ? done_before++ + most >= done : open_before++ < most;
    if (!shown) continue;
    const Json& operation = operations.at(i);
    const Json& entry = entry_of(flight, operation.at("records").at(0));
    rows.push_back({operation.at("description").get<std::string>(),
                    rank_list(operation.at("members").get<Members>()),
                    lane_of(operation.at("process_group").get<std::string>()),
                    fmt::format("{}", operation.at("number").get<std::uint64_t>() & kInEpoch),
                    name_of(operation), size_of(entry), site_of(entry), states[i].text});
  }
  if (rows.empty()) return "no collective is recorded yet\n";
  const std::string text =
      config::table({"GROUP", "RANKS", "LANE", "NO", "OPERATION", "ELEMENTS", "SITE", "STATE"}, rows,
                    {columns, {"ELEMENTS", "LANE", "NO", "SITE", "RANKS"}});
  const std::string undone = open == 0   ? "all are done"
                             : open == 1 ? "1 is not done"
                                         : fmt::format("{} are not done", open);
  return text +
         fmt::format("{} of {} operations, oldest first; {}; --last N shows more, -o FILE writes all\n",
                     rows.size(), operations.size(), undone);
}

}  // namespace muster::cli
