#include "daemon/control/job_look.hpp"

#include "daemon/control/fields.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

using shm::GroupCount;
using shm::RankCount;

constexpr std::size_t kRowsMax = std::size_t{1} << 16;    // of groups
constexpr std::size_t kValuesMax = std::size_t{4} << 20;  // of all rows together
constexpr std::uint64_t kTimeMax = std::uint64_t{1} << 62;

JobLook::Tallies values_in(const Json& list, const char* name, Fields& fields) {
  JobLook::Tallies values{};
  if (!list.is_array() || list.size() != values.size()) {
    fields.bad(name);
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!list[i].is_number_unsigned()) fields.bad(name);
    values[i] = list[i].is_number_unsigned() ? list[i].get<std::uint64_t>() : 0;
  }
  return values;
}

}  // namespace

JobLook look_at(const shm::JobCountersReader& counters, Instant now) {
  JobLook look;
  look.engine_pid = counters.engine_pid();
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

Json look_json(const JobLook& look) {
  Json groups = Json::array();
  for (const shm::JobCountersReader::GroupRow& row : look.groups)
    groups.push_back(row.value(GroupCount::kMembers) == 0 ? Json(nullptr)
                                                          : Json{{"name", row.name}, {"values", row.values}});
  return {{"engine_pid", look.engine_pid},
          {"beat_ns", std::max<std::int64_t>(0, look.beat.count())},
          {"silent_ns", std::max<std::int64_t>(0, (look.at - look.beat).count())},
          {"ranks", look.ranks},
          {"groups", std::move(groups)}};
}

Result<JobLook> look_in(const std::string& text, const std::vector<std::uint32_t>& ranks,
                        const std::string& what) {
  MUSTER_ASSIGN_OR_RETURN(const Json json, json_in(text, kValuesMax, what));
  Fields fields(what);
  JobLook look;
  look.engine_pid =
      static_cast<std::int32_t>(fields.word(json, "engine_pid", std::numeric_limits<std::int32_t>::max()));
  look.beat = Nanos(static_cast<std::int64_t>(fields.number(json, "beat_ns", kTimeMax)));
  look.at = look.beat + Nanos(static_cast<std::int64_t>(fields.number(json, "silent_ns", kTimeMax - 1)));
  const Json& rows = fields.list(json, "ranks");
  if (rows.size() != ranks.size()) fields.bad("ranks");
  for (std::size_t i = 0; i < std::min(rows.size(), ranks.size()); ++i) {
    look.ranks.push_back(values_in(rows[i], "ranks", fields));
    if (look.ranks.back()[static_cast<std::size_t>(RankCount::kRank)] != ranks[i]) fields.bad("ranks");
  }
  const Json& groups = fields.list(json, "groups");
  if (groups.size() > kRowsMax) fields.bad("groups");
  if (!fields.why().ok()) return fail(fields.why());
  for (const Json& group : groups) {
    shm::JobCountersReader::GroupRow& row = look.groups.emplace_back();
    if (group.is_null()) continue;
    row.name = fields.text(group, "name", shm::kTallyNameBytes);
    row.values = values_in(Fields::at(group, "values"), "values", fields);
  }
  if (!fields.why().ok()) return fail(fields.why());
  return look;
}

}  // namespace muster::control
