#include "daemon/cli/merge/flight_merge.hpp"

#include "daemon/control/fields.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace muster::cli {
namespace {

using control::Fields;

constexpr std::size_t kBytesOfValue = 8;  // of a node's text, at least, on average
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;
constexpr const char* kStates[] = {"scheduled", "started", "completed"};
constexpr const char* kClocks =
    "Times are the monotonic clock of the record's node. Clocks of nodes are not compared: operations are "
    "matched by process group and number.";

struct KnownGroup {
  std::string description;
  std::vector<std::uint32_t> members;
  friend bool operator==(const KnownGroup&, const KnownGroup&) = default;
};
using KnownGroups = std::map<std::string, KnownGroup>;

struct Dump {
  std::uint32_t rank = 0;
  std::string node;
  bool older_lost = false;
  Json json;  // checked; without entries that are left out
};

// ---- reading reports of nodes ------------------------------------------------------------------

Json sizes_in(Fields& fields, const Json& entry, const char* name) {
  Json sizes = Json::array();
  for (const Json& tensor : fields.list(entry, name)) {
    if (!tensor.is_array()) fields.bad(name);
    Json dims = Json::array();
    if (tensor.is_array())
      for (const Json& dim : tensor) {
        if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > kNumberMax) fields.bad(name);
        dims.push_back(dim.is_number_unsigned() ? dim : Json(0u));
      }
    sizes.push_back(std::move(dims));
  }
  return sizes;
}

Json texts_in(Fields& fields, const Json& entry, const char* name) {
  Json texts = Json::array();
  for (const Json& text : fields.list(entry, name)) {
    if (!text.is_string() || text.get_ref<const std::string&>().size() > Fields::kTextBytesMax)
      fields.bad(name);
    texts.push_back(text.is_string() ? text : Json(""));
  }
  return texts;
}

Json frames_in(Fields& fields, const Json& entry) {
  Json frames = Json::array();
  for (const Json& frame : fields.list(entry, "frames"))
    frames.push_back({{"name", fields.text(frame, "name")},
                      {"filename", fields.text(frame, "filename")},
                      {"line", fields.number(frame, "line", kNumberMax)}});
  return frames;
}

// An entry with the fields that are known, each of its type.
Json entry_in(Fields& fields, const Json& said, std::uint32_t rank, const KnownGroups& groups) {
  Json entry;
  for (const char* name :
       {"record_id", "pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "time_created_ns",
        "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms"})
    entry[name] = fields.number(said, name, kNumberMax);
  for (const char* name : {"thread_name", "thread_id", "profiling_name", "state"})
    entry[name] = fields.text(said, name);
  for (const char* name : {"retired", "is_p2p"}) entry[name] = fields.yes(said, name);
  for (const char* name : {"input_sizes", "output_sizes"}) entry[name] = sizes_in(fields, said, name);
  for (const char* name : {"input_dtypes", "output_dtypes", "process_group"})
    entry[name] = texts_in(fields, said, name);
  entry["frames"] = frames_in(fields, said);
  if (Fields::has(said, "duration_ms")) {
    if (!Fields::at(said, "duration_ms").is_number()) fields.bad("duration_ms");
    entry["duration_ms"] = Fields::at(said, "duration_ms");
  }
  if (std::find(std::begin(kStates), std::end(kStates), entry.at("state")) == std::end(kStates))
    fields.bad("state");
  const Json& group = entry.at("process_group");
  const auto known = group.size() == 2 ? groups.find(group[0].get<std::string>()) : groups.end();
  const bool takes_part = known != groups.end() && std::binary_search(known->second.members.begin(),
                                                                      known->second.members.end(), rank);
  if (!takes_part) fields.bad("process_group");
  return entry;
}

// As many as a record of that length has, and no more: each takes much more memory than its text.
std::size_t values_max(const std::string& text) {
  return std::max(std::size_t{1} << 16, text.size() / kBytesOfValue);
}

std::size_t ranks_text_max(std::uint32_t world) {
  return std::size_t{12} * world + 2;  // of a list of ranks
}

// "[0, 1]", as PyTorch writes it, rising.
std::vector<std::uint32_t> members_in(Fields& fields, const Json& group, std::uint32_t world) {
  const std::string text = fields.text(group, "ranks", ranks_text_max(world));
  const Json list = Json::parse(text, nullptr, false);
  std::vector<std::uint32_t> members;
  if (list.is_array())
    for (const Json& rank : list)
      if (rank.is_number_unsigned() && rank.get<std::uint64_t>() < world)
        members.push_back(rank.get<std::uint32_t>());
  if (!list.is_array() || members.empty() || members.size() != list.size()) fields.bad("ranks");
  std::sort(members.begin(), members.end());
  return members;
}

// Adds the groups of a dump to those that are known; they must not contradict each other.
void read_groups(Fields& fields, const Json& said, std::uint32_t world, KnownGroups& groups, Json* config) {
  for (const auto& [name, group] : fields.map(said, "pg_config").items()) {
    KnownGroup read{fields.text(group, "desc"), members_in(fields, group, world)};
    if (name.size() > Fields::kTextBytesMax || fields.text(group, "name") != name) fields.bad("pg_config");
    (*config)[name] = {{"name", name},
                       {"desc", read.description},
                       {"ranks", fields.text(group, "ranks", ranks_text_max(world))}};
    const auto [place, is_new] = groups.try_emplace(name, read);
    if (!is_new && !(place->second == read)) fields.bad("pg_config");
  }
}

Json progress_in(Fields& fields, const Json& said) {
  Json all = Json::object();
  for (const auto& [id, progress] : fields.map(said, "pg_status").items()) {
    if (id.empty() || id.size() > 20 || id.find_first_not_of("0123456789") != std::string::npos)
      fields.bad("pg_status");
    Json& counts = all[id];
    for (const char* name :
         {"last_enqueued_collective", "last_started_collective", "last_completed_collective"})
      counts[name] = fields.number(progress, name, kNumberMax);
  }
  return all;
}

Dump dump_in(Fields& fields, const Json& said, std::uint32_t rank, std::uint32_t world, KnownGroups& groups) {
  Dump dump;
  dump.rank = rank;
  dump.older_lost = fields.yes(said, "older_lost");
  dump.json = {
      {"version", fields.text(said, "version")}, {"comm_lib_version", fields.text(said, "comm_lib_version")},
      {"older_lost", dump.older_lost},           {"pg_config", Json::object()},
      {"pg_status", progress_in(fields, said)},  {"entries", Json::array()}};
  read_groups(fields, said, world, groups, &dump.json["pg_config"]);
  for (const Json& entry : fields.list(said, "entries")) {
    if (!fields.why().ok()) return dump;
    dump.json["entries"].push_back(entry_in(fields, entry, rank, groups));
  }
  return dump;
}

// All dumps of a node, or none: a node that reports one impossible fact is not believed in any other.
Result<std::vector<Dump>> dumps_in(const NodeReport& report, std::uint32_t world, KnownGroups& groups) {
  const std::string what = report.node.empty() ? "the flight record" : "the flight record of " + report.node;
  MUSTER_ASSIGN_OR_RETURN(const Json said, control::json_in(report.text, values_max(report.text), what));
  Fields fields(what);
  KnownGroups all = groups;
  std::vector<Dump> dumps;
  const Json& ranks = fields.map(said, "ranks");
  if (ranks.size() != report.ranks.size()) fields.bad("ranks");
  for (const std::uint32_t rank : report.ranks) {
    const auto its = ranks.find(std::to_string(rank));
    if (its == ranks.end()) {
      fields.bad("ranks");
      break;
    }
    dumps.push_back(dump_in(fields, *its, rank, world, all));
    dumps.back().node = report.node;
  }
  if (!fields.why().ok()) return fail(fields.why());
  groups = std::move(all);
  return dumps;
}

// ---- merging -----------------------------------------------------------------------------------

// An operation of a process group. Numbers do not repeat at a rank; of a node that repeats them the n-th
// record of a number is one operation with the n-th of others.
struct Name {
  std::string group;
  std::uint64_t number = 0;
  std::uint32_t again = 0;
  friend auto operator<=>(const Name&, const Name&) = default;
};

std::vector<Name> names_of(const Dump& dump) {
  std::map<std::pair<std::string, std::uint64_t>, std::uint32_t> seen;
  std::vector<Name> names;
  for (const Json& entry : dump.json.at("entries")) {
    const std::string group = entry.at("process_group").at(0);
    const auto number = entry.at("collective_seq_id").get<std::uint64_t>();
    names.push_back({group, number, seen[{group, number}]++});
  }
  return names;
}

// Engines do so among their own ranks already.
void leave_out_what_others_have_lost(std::vector<Dump>& dumps, const KnownGroups& groups) {
  std::map<std::string, std::vector<std::uint32_t>> forgetful;  // members, by process group
  std::map<Name, std::set<std::uint32_t>> remembered;           // by which of them
  for (const Dump& dump : dumps) {
    if (!dump.older_lost) continue;
    for (const auto& [name, group] : groups)
      if (std::binary_search(group.members.begin(), group.members.end(), dump.rank))
        forgetful[name].push_back(dump.rank);
    for (const Name& name : names_of(dump)) remembered[name].insert(dump.rank);
  }
  for (Dump& dump : dumps) {
    const std::vector<Name> names = names_of(dump);
    Json kept = Json::array();
    for (std::size_t i = 0; i < names.size(); ++i) {
      Json& entry = dump.json["entries"][i];
      const auto by = remembered.find(names[i]);
      const auto lost = forgetful.find(names[i].group);
      const bool all_know =
          lost == forgetful.end() || (by != remembered.end() && by->second.size() == lost->second.size());
      if (all_know || entry.at("state") != "completed") kept.push_back(std::move(entry));
    }
    dump.json["entries"] = std::move(kept);
  }
}

// Operations in an order that is each rank's. Lanes need no common order, so ranks may contradict each other;
// then the lowest rank decides.
class RankOrder {
 public:
  struct Operation {
    std::vector<std::pair<std::size_t, std::size_t>> records;  // dump, entry
    std::size_t waits_for = 0;  // records before which their ranks have others that are not ordered yet
    bool ordered = false;
  };
  explicit RankOrder(const std::vector<Dump>& dumps) : next_(dumps.size()) {
    for (std::size_t d = 0; d < dumps.size(); ++d) {
      names_.push_back(names_of(dumps[d]));
      for (std::size_t e = 0; e < names_[d].size(); ++e) {
        Operation& operation = operations_[names_[d][e]];
        operation.records.emplace_back(d, e);
        ++operation.waits_for;
      }
    }
  }
  std::vector<std::pair<Name, Operation>> take_all() {
    for (std::size_t d = 0; d < names_.size(); ++d) come_to_next(d);
    std::vector<std::pair<Name, Operation>> all;
    for (std::size_t lowest = 0; lowest < names_.size();) {
      while (!ready_.empty()) {
        const Name name = ready_.front();
        ready_.pop_front();
        take(name, all);
      }
      if (next_[lowest] == names_[lowest].size())
        ++lowest;
      else
        take(names_[lowest][next_[lowest]], all);
    }
    return all;
  }

 private:
  void take(const Name& name, std::vector<std::pair<Name, Operation>>& all) {
    Operation& operation = operations_.at(name);
    if (std::exchange(operation.ordered, true)) return;
    all.emplace_back(name, operation);
    for (const auto& [d, e] : operation.records)
      if (next_[d] == e) come_to_next(d);
  }
  // The rank's next operation that is not ordered has one record less to wait for.
  void come_to_next(std::size_t d) {
    while (next_[d] < names_[d].size() && operations_.at(names_[d][next_[d]]).ordered) ++next_[d];
    if (next_[d] == names_[d].size()) return;
    const Name& name = names_[d][next_[d]];
    if (--operations_.at(name).waits_for == 0) ready_.push_back(name);
  }

  std::vector<std::vector<Name>> names_;  // by dump
  std::vector<std::size_t> next_;         // by dump: the first that is not ordered
  std::map<Name, Operation> operations_;
  std::deque<Name> ready_;
};

Json operation_json(const std::vector<Dump>& dumps, const KnownGroup& group, const Name& name,
                    const RankOrder::Operation& operation) {
  Json records = Json::array();
  std::vector<std::uint32_t> unrecorded = group.members;
  for (const auto& [d, e] : operation.records) {
    const Json& entry = dumps[d].json.at("entries").at(e);
    Json record{{"rank", dumps[d].rank}, {"record_id", entry.at("record_id")}, {"state", entry.at("state")}};
    if (!dumps[d].node.empty()) record["node"] = dumps[d].node;
    records.push_back(std::move(record));
    std::erase(unrecorded, dumps[d].rank);
  }
  const auto& [d, e] = operation.records.front();
  return {{"process_group", name.group},
          {"description", group.description},
          {"number", name.number},
          {"name", dumps[d].json.at("entries").at(e).at("profiling_name")},
          {"members", group.members},
          {"records", std::move(records)},
          {"unrecorded", std::move(unrecorded)}};
}

}  // namespace

MergedFlight merged_flight(const std::string& job, std::vector<NodeReport>& reports) {
  std::uint32_t world = 0;
  for (const NodeReport& report : reports) world += static_cast<std::uint32_t>(report.ranks.size());
  KnownGroups groups;
  std::vector<Dump> dumps;
  for (NodeReport& report : reports) {
    if (silent(report)) continue;
    auto read = dumps_in(report, world, groups);
    if (!read) report.why = read.error().message();
    if (read) dumps.insert(dumps.end(), std::move_iterator(read->begin()), std::move_iterator(read->end()));
  }
  std::sort(dumps.begin(), dumps.end(), [](const Dump& a, const Dump& b) { return a.rank < b.rank; });
  leave_out_what_others_have_lost(dumps, groups);
  MergedFlight merged;
  Json operations = Json::array();
  for (const auto& [name, operation] : RankOrder(dumps).take_all())
    operations.push_back(operation_json(dumps, groups.at(name.group), name, operation));
  Json ranks = Json::object();
  for (Dump& dump : dumps) {
    merged.entries += dump.json.at("entries").size();
    if (!dump.node.empty()) {
      dump.json["node"] = dump.node;
      for (Json& entry : dump.json["entries"]) entry["node"] = dump.node;
    }
    ranks[std::to_string(dump.rank)] = std::move(dump.json);
  }
  merged.ranks = ranks.size();
  merged.json = {{"job", job},
                 {"world", world},
                 {"clocks", kClocks},
                 {"ranks", std::move(ranks)},
                 {"operations", std::move(operations)},
                 {"unanswered", unanswered_json(reports)}};
  return merged;
}

}  // namespace muster::cli
