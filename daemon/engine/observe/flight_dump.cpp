#include "daemon/engine/observe/flight_dump.hpp"

#include "daemon/control/own_version.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::engine {
namespace {

using control::Json;

constexpr const char* kVersion = "2.10";

struct ProcessGroup {
  std::string name;
  std::string description;
  std::vector<std::uint32_t> ranks;
};

// One operation of one rank, of either path.
struct Record {
  ProcessGroup group;
  std::uint64_t number = 0;
  muster_op op = 0;
  muster_dtype dtype = 0;
  bool uneven = false;
  bool sends_up = false;  // SEND, RECV: the sender is the lower rank of the two
  std::uint64_t source_bytes = 0;
  std::uint64_t target_bytes = 0;
  Instant created{0};
  Instant started{0};
  Instant completed{0};
  FlightEntry::State state = FlightEntry::State::kScheduled;
  Nanos timeout{0};
  std::string site;
};

std::vector<std::uint32_t> world_ranks(const scheduler::Group& group) {
  std::vector<std::uint32_t> ranks;
  for (const Rank rank : group.ranks) ranks.push_back(rank.value);
  return ranks;
}

// The groups of a job, and whether it has ranks on several nodes.
struct GroupNames {
  std::span<const scheduler::Group> all;
  bool several_nodes = false;
};

// The name of a group: the same on all its nodes, and no other group of any node has it. The numbers of made
// groups do not identify them: a group of several nodes may have another one on each. A group of one node may
// share one with a group elsewhere.
std::string name_of(const GroupNames& groups, std::uint32_t id) {
  const scheduler::Group& group = groups.all[id];
  const bool of_mesh = group.key == std::uint64_t{id} + 1;  // as JobGroups gives keys
  if (!groups.several_nodes || of_mesh || group.ranks.empty()) return std::to_string(id);
  return group.spans() ? fmt::format("made-{:x}", group.key) : fmt::format("{}@{}", id, group.ranks[0].value);
}

void set_group(const GroupNames& groups, std::uint32_t id, const std::string& channel, std::int64_t sender,
               std::int64_t receiver, Record& record) {
  const scheduler::Group& group = groups.all[id];
  const std::string name = name_of(groups, id);
  const auto members = static_cast<std::int64_t>(group.ranks.size());
  record.group.description = group.name;
  if (sender < 0 || sender >= members || receiver < 0 || receiver >= members) {
    record.group.name = fmt::format("{}:{}", name, channel);
    record.group.ranks = world_ranks(group);
    return;
  }
  const std::uint32_t from = group.ranks[static_cast<std::size_t>(sender)].value;
  const std::uint32_t to = group.ranks[static_cast<std::size_t>(receiver)].value;
  record.group.name = fmt::format("{}:{}:{}>{}", name, channel, from, to);
  record.group.ranks = {std::min(from, to), std::max(from, to)};
  record.sends_up = from < to;
}

Record record_of(const GroupNames& groups, const scheduler::LaneTable& lanes, const FlightEntry& entry) {
  Record record;
  const bool pair = entry.sender >= 0;
  set_group(groups, entry.group, pair ? "engine" : lanes.label(entry.lane_id), entry.sender, entry.receiver,
            record);
  record.number = groups.all[entry.group].spans() && !pair ? entry.span_number : entry.number;
  record.op = entry.op;
  record.dtype = entry.dtype;
  record.uneven = entry.uneven;
  record.source_bytes = entry.source_bytes;
  record.target_bytes = entry.target_bytes;
  record.created = entry.created;
  record.started = entry.started;
  record.completed = entry.completed;
  record.state = entry.state;
  record.timeout = entry.timeout;
  record.site = entry.site.data();
  return record;
}

// A record without an end time has ended, at the latest, when the rank's next operation began.
Record record_of(const GroupNames& groups, const DirectRecords::Flight& flight, Instant discovered) {
  Record record;
  std::int64_t sender = -1;
  std::int64_t receiver = -1;
  if (flight.what.op == MUSTER_SEND) sender = flight.member, receiver = flight.what.peer;
  if (flight.what.op == MUSTER_RECV) sender = flight.what.peer, receiver = flight.member;
  set_group(groups, flight.group.value, "direct", sender, receiver, record);
  record.number = numbered_by_epoch(flight.epoch, flight.number);
  record.op = flight.what.op;
  record.dtype = flight.what.dtype;
  record.uneven = flight.uneven;
  record.source_bytes = flight.source_bytes;
  record.target_bytes = flight.target_bytes;
  record.created = record.started = flight.begun;
  record.state = flight.state == shm::DirectRecord::State::kWell   ? FlightEntry::State::kCompleted
                 : flight.state == shm::DirectRecord::State::kOpen ? FlightEntry::State::kStarted
                                                                   : FlightEntry::State::kFailed;
  if (record.state == FlightEntry::State::kCompleted) record.completed = flight.ended.value_or(discovered);
  return record;
}

// A record without a number, such as a waiting start, gets the next number of its channel that the rank has
// not used.
void number_the_waiting(std::vector<Record>& records) {
  std::map<std::string, std::uint64_t> highest;
  for (const Record& record : records)
    highest[record.group.name] = std::max(highest[record.group.name], record.number);
  for (Record& record : records)
    if (record.number == 0) record.number = ++highest[record.group.name];
}

std::vector<Record> records_of(const GroupNames& groups, const scheduler::LaneTable& lanes,
                               const RankFlights& flights, Instant now) {
  std::vector<Record> records;
  for (const FlightEntry& entry : flights.started)
    if (entry.group < groups.all.size()) records.push_back(record_of(groups, lanes, entry));
  for (std::size_t i = 0; i < flights.run.size(); ++i) {
    const Instant next = i + 1 < flights.run.size() ? flights.run[i + 1].begun : now;
    records.push_back(record_of(groups, flights.run[i],
                                std::clamp(next, flights.run[i].begun, std::max(now, flights.run[i].begun))));
  }
  number_the_waiting(records);
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.created < b.created; });
  return records;
}

// The records of a process group that its members with lost records still have.
struct Remembered {
  struct By {
    std::size_t ranks = 0;
    std::uint32_t latest = 0;
  };
  std::size_t forgetful = 0;                 // members that have lost records
  std::unordered_map<std::uint64_t, By> by;  // by number: those of them that have its record
};

void forget_what_others_have_lost(const RankTable<RankFlights>& ranks,
                                  std::vector<std::vector<Record>>& all) {
  const World& world = ranks.world();
  const auto has_lost = [&](std::uint32_t rank) {
    return world.is_local(Rank(rank)) && ranks[Rank(rank)].lost;
  };
  std::unordered_map<std::string, Remembered> groups;
  for (const Rank rank : world.locals())
    for (const Record& record : all[world.local(rank).value]) {
      const auto [place, is_new] = groups.try_emplace(record.group.name);
      Remembered& group = place->second;
      const auto& members = record.group.ranks;
      if (is_new)
        group.forgetful = static_cast<std::size_t>(std::count_if(members.begin(), members.end(), has_lost));
      if (!has_lost(rank.value)) continue;
      Remembered::By& by = group.by[record.number];
      if (by.ranks == 0 || by.latest != rank.value) by = {by.ranks + 1, rank.value};
    }
  for (std::vector<Record>& records : all) {
    std::erase_if(records, [&](const Record& record) {
      if (record.state != FlightEntry::State::kCompleted) return false;
      const Remembered& group = groups.at(record.group.name);
      const auto known = group.by.find(record.number);
      return (known == group.by.end() ? 0 : known->second.ranks) < group.forgetful;
    });
  }
}

// The names that c10::toString() writes.
const char* type_name(muster_dtype dtype) {
  switch (dtype) {
    case MUSTER_F32:
      return "Float";
    case MUSTER_BF16:
      return "BFloat16";
    case MUSTER_F16:
      return "Half";
    case MUSTER_F64:
      return "Double";
    case MUSTER_I32:
      return "Int";
    case MUSTER_I64:
      return "Long";
    case MUSTER_I8:
      return "Char";
    case MUSTER_F8_E4M3:
      return "Float8_e4m3fn";
    case MUSTER_F8_E5M2:
      return "Float8_e5m2";
    default:
      return "Byte";
  }
}

struct Shapes {
  std::string name;  // of the operation, in the analyser's words
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};

// The analyser compares sizes among members. If PyTorch gives one tensor on all ranks, so does this dump.
// Uneven blocks are given as the whole vector, under names whose parts the analyser does not multiply.
Shapes shapes_of(const Record& record) {
  const std::uint64_t element = std::max<std::size_t>(dtype_bytes(record.dtype), 1);
  const std::uint64_t source = record.source_bytes / element;
  const std::uint64_t target = record.target_bytes / element;
  const std::uint64_t whole = std::max(source, target);
  const OperationRow& row = row_of(record.op);
  if (!has_data(record.op)) return {row.name, 1, 1};
  if (row.peer == OperationRow::Peer::kReceiver)
    return {record.sends_up ? "send 0->1" : "send 1->0", source, source};
  if (row.peer == OperationRow::Peer::kSender)
    return {record.sends_up ? "recv 1<-0" : "recv 0<-1", target, target};
  if (row.gives == Portion::kBlockAtRoot || row.gets == Portion::kBlockAtRoot)
    return {row.name, whole, whole};
  if (record.uneven && row.recorded_uneven_as != nullptr) return {row.recorded_uneven_as, whole, whole};
  return {row.recorded_as != nullptr ? row.recorded_as : row.name, source, target};
}

Json frames_of(const Record& record, const std::string& name) {
  if (record.site.empty()) return Json::array();
  const auto colon = record.site.rfind(':');
  std::int64_t line = 0;
  bool has_line = false;
  if (colon != std::string::npos) {
    const char* end = record.site.data() + record.site.size();
    has_line = std::from_chars(record.site.data() + colon + 1, end, line).ptr == end &&
               colon + 1 < record.site.size();
  }
  return Json::array({{{"name", name},
                       {"filename", has_line ? record.site.substr(0, colon) : record.site},
                       {"line", has_line ? line : 0}}});
}

const char* state_name(const Record& record) {
  if (record.state == FlightEntry::State::kCompleted) return "completed";
  return record.started.count() > 0 ? "started" : "scheduled";
}

Json entry_json(const Record& record, std::uint64_t id, std::uint64_t group_id) {
  const Shapes shapes = shapes_of(record);
  const bool pair = is_transfer(record.op);
  const bool over =
      record.state == FlightEntry::State::kCompleted || record.state == FlightEntry::State::kFailed;
  const char* type = type_name(record.dtype);
  Json entry{{"record_id", id},
             {"pg_id", group_id},
             {"process_group", {record.group.name, record.group.description}},
             {"thread_name", "muster"},
             {"thread_id", "0"},
             {"collective_seq_id", record.number},
             {"p2p_seq_id", pair ? record.number : 0},
             {"op_id", record.number},
             {"profiling_name", "nccl:" + shapes.name},
             {"time_created_ns", record.created.count()},
             {"input_sizes", Json::array({Json::array({shapes.input})})},
             {"input_dtypes", Json::array({type})},
             {"output_sizes", Json::array({Json::array({shapes.output})})},
             {"output_dtypes", Json::array({type})},
             {"state", state_name(record)},
             {"time_discovered_started_ns", record.started.count()},
             {"time_discovered_completed_ns", record.completed.count()},
             {"retired", over},
             {"timeout_ms", std::chrono::duration_cast<std::chrono::milliseconds>(record.timeout).count()},
             {"is_p2p", pair},
             {"frames", frames_of(record, shapes.name)}};
  if (record.state == FlightEntry::State::kCompleted)
    entry["duration_ms"] = static_cast<double>((record.completed - record.started).count()) * 1e-6;
  return entry;
}

Json dump_of(const std::vector<Record>& records, bool lost) {
  Json config = Json::object();
  Json status = Json::object();
  Json entries = Json::array();
  std::map<std::string, std::uint64_t> ids;
  for (const Record& record : records) {
    const std::uint64_t id = ids.emplace(record.group.name, ids.size()).first->second;
    std::string ranks;
    for (const std::uint32_t rank : record.group.ranks)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    config[record.group.name] = {
        {"name", record.group.name}, {"desc", record.group.description}, {"ranks", "[" + ranks + "]"}};
    Json& progress = status[std::to_string(id)];
    if (progress.is_null())
      progress = {
          {"last_enqueued_collective", 0}, {"last_started_collective", 0}, {"last_completed_collective", 0}};
    const auto raise = [&](const char* name) {
      progress[name] = std::max(progress[name].get<std::uint64_t>(), record.number);
    };
    raise("last_enqueued_collective");
    if (record.started.count() > 0) raise("last_started_collective");
    if (record.state == FlightEntry::State::kCompleted) raise("last_completed_collective");
    entries.push_back(entry_json(record, entries.size(), id));
  }
  return {{"version", kVersion}, {"comm_lib_version", "muster " + control::own_version()},
          {"older_lost", lost},  {"pg_config", config},
          {"pg_status", status}, {"entries", entries}};
}

}  // namespace

std::vector<Json> flight_dump(std::span<const scheduler::Group> groups, const scheduler::LaneTable& lanes,
                              const RankTable<RankFlights>& ranks, Instant now) {
  std::vector<std::vector<Record>> all;
  const GroupNames known{groups, ranks.world().nodes().size() > 1};
  for (const RankFlights& flights : ranks) all.push_back(records_of(known, lanes, flights, now));
  forget_what_others_have_lost(ranks, all);
  std::vector<Json> dumps;
  for (std::uint32_t local = 0; local < all.size(); ++local)
    dumps.push_back(dump_of(all[local], ranks[LocalRank(local)].lost));
  return dumps;
}

}  // namespace muster::engine
