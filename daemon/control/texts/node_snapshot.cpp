#include "daemon/control/texts/node_snapshot.hpp"

#include "daemon/control/fields.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

constexpr std::size_t kDifferenceBytesMax = 4096;
constexpr std::uint64_t kAgeMax = std::uint64_t{1} << 60;  // 36 years, in ns
constexpr std::uint64_t kNumberMax = std::numeric_limits<std::uint64_t>::max();

constexpr std::initializer_list<Path> kPaths = {Path::kDirect, Path::kEngine};
constexpr std::initializer_list<blame::RankState::Process> kProcessStates = {
    blame::RankState::Process::kUnknown, blame::RankState::Process::kRunning,
    blame::RankState::Process::kStopped, blame::RankState::Process::kFrozen,
    blame::RankState::Process::kDead};

// ---- writing -----------------------------------------------------------------------------------

std::int64_t age_ns(Instant now, Instant then) {
  return std::max(Nanos(0), now - then).count();
}

Json key_json(const blame::SpanKey& key) {
  return {{"group", key.group}, {"lane", key.lane},   {"sender", key.sender}, {"receiver", key.receiver},
          {"tag", key.tag},     {"epoch", key.epoch}, {"number", key.number}};
}

Json missing_json(const blame::Wait::Missing& missing) {
  Json json{{"rank", missing.rank}, {"reason", missing.reason}, {"stands", missing.stands}};
  if (missing.behind) json["behind"] = *missing.behind;
  return json;
}

Json rank_facts_json(const blame::Snapshot& snapshot, std::uint32_t number) {
  const blame::RankState& rank = snapshot.ranks[number];
  Json json{{"rank", number},
            {"attached", rank.attached},
            {"was_attached", rank.was_attached},
            {"pid", rank.pid},
            {"process", blame::process_state_name(rank.process)},
            {"cgroup", rank.where}};
  if (rank.heard) json["heard_ns"] = age_ns(snapshot.now, *rank.heard);
  if (rank.finished)
    json["finished"] = {{"group", rank.finished->group},
                        {"op", rank.finished->label},
                        {"path", path_name(rank.finished->path)},
                        {"number", rank.finished->number},
                        {"ago_ns", age_ns(snapshot.now, rank.finished->at)}};
  return json;
}

Json wait_facts_json(const blame::Snapshot& snapshot, const blame::Wait& wait) {
  Json arrived = Json::array();
  for (const blame::Wait::Arrived& each : wait.arrived)
    arrived.push_back({{"rank", each.rank}, {"ago_ns", age_ns(snapshot.now, each.at)}});
  Json missing = Json::array();
  for (const blame::Wait::Missing& each : wait.missing) missing.push_back(missing_json(each));
  Json json{{"group", wait.group_name},
            {"group_id", wait.group},
            {"members", wait.members},
            {"path", path_name(wait.path)},
            {"lane", wait.lane},
            {"number", wait.number},
            {"op", wait.operation.label},
            {"bytes", wait.operation.bytes},
            {"dtype", wait.operation.dtype},
            {"site", wait.operation.site},
            {"waiting_ns", age_ns(snapshot.now, wait.since)},
            {"arrived", std::move(arrived)},
            {"missing", std::move(missing)},
            {"inside", wait.inside},
            {"awaiting_readers", wait.awaiting},
            {"difference", wait.difference}};
  if (wait.operation.tag) json["tag"] = *wait.operation.tag;
  if (!wait.operation.common.empty()) json["common"] = wait.operation.common;
  if (wait.span) {
    json["span"] = key_json(*wait.span);
    json["takes_part"] = wait.takes_part;
  }
  return json;
}

// ---- reading -----------------------------------------------------------------------------------

Nanos age_in(Fields& fields, const Json& from, const char* name) {
  return Nanos(static_cast<std::int64_t>(fields.number(from, name, kAgeMax)));
}

Instant when_in(Fields& fields, const Json& from, const char* name) {
  return -age_in(fields, from, name);
}

blame::SpanKey key_in(const Json& json, Fields& fields) {
  blame::SpanKey key;
  key.group = fields.number(json, "group", kNumberMax);
  key.lane = fields.number(json, "lane", kNumberMax);
  key.sender = fields.index(json, "sender");
  key.receiver = fields.index(json, "receiver");
  key.tag = fields.word(json, "tag");
  key.epoch = fields.number(json, "epoch", kNumberMax);
  key.number = fields.number(json, "number", kNumberMax);
  return key;
}

blame::Wait::Missing missing_in(const Json& json, std::uint32_t world, Fields& fields) {
  blame::Wait::Missing missing;
  missing.rank = fields.word(json, "rank", world - 1);
  missing.reason = fields.text(json, "reason");
  missing.stands = fields.text(json, "stands");
  if (Fields::has(json, "behind")) missing.behind = fields.word(json, "behind");
  return missing;
}

void read_rank(const Json& json, blame::Snapshot& snapshot, Fields& fields) {
  const auto last = static_cast<std::uint32_t>(snapshot.ranks.size()) - 1;
  blame::RankState& rank = snapshot.ranks[fields.word(json, "rank", last)];
  rank.local = true;
  rank.attached = fields.yes(json, "attached");
  rank.was_attached = fields.yes(json, "was_attached");
  rank.pid = static_cast<std::int32_t>(fields.word(json, "pid", std::numeric_limits<std::int32_t>::max()));
  rank.process = fields.one_of(json, "process", kProcessStates, &blame::process_state_name);
  rank.where = fields.text(json, "cgroup");
  if (Fields::has(json, "heard_ns")) rank.heard = when_in(fields, json, "heard_ns");
  if (!Fields::has(json, "finished")) return;
  const Json& finished = Fields::at(json, "finished");
  rank.finished = blame::RankState::LastOperation{fields.text(finished, "group"), fields.text(finished, "op"),
                                                  fields.one_of(finished, "path", kPaths, &path_name),
                                                  fields.number(finished, "number", kNumberMax),
                                                  when_in(fields, finished, "ago_ns")};
}

blame::Wait wait_in(const Json& json, std::uint32_t world, Fields& fields) {
  blame::Wait wait;
  wait.group_name = fields.text(json, "group");
  wait.group = fields.word(json, "group_id");
  wait.members = fields.word(json, "members", world);
  wait.path = fields.one_of(json, "path", kPaths, &path_name);
  wait.lane = fields.text(json, "lane");
  wait.number = fields.number(json, "number", kNumberMax);
  wait.operation = {fields.text(json, "op"), fields.number(json, "bytes", kNumberMax),
                    fields.text(json, "dtype"), fields.text(json, "site")};
  if (Fields::has(json, "tag")) wait.operation.tag = fields.word(json, "tag");
  if (Fields::has(json, "common")) wait.operation.common = fields.text(json, "common");
  wait.since = when_in(fields, json, "waiting_ns");
  for (const Json& arrived : fields.list(json, "arrived"))
    wait.arrived.push_back({fields.word(arrived, "rank", world - 1), when_in(fields, arrived, "ago_ns")});
  for (const Json& missing : fields.list(json, "missing"))
    wait.missing.push_back(missing_in(missing, world, fields));
  wait.inside = fields.ranks(json, "inside", world);
  wait.awaiting = fields.ranks(json, "awaiting_readers", world);
  wait.difference = fields.text(json, "difference", kDifferenceBytesMax);
  if (Fields::has(json, "span")) {
    wait.span = key_in(Fields::at(json, "span"), fields);
    wait.takes_part = fields.ranks(json, "takes_part", world);
  }
  return wait;
}

blame::Straggler straggler_in(const Json& json, std::uint32_t world, Fields& fields) {
  blame::Straggler straggler;
  straggler.rank = fields.word(json, "rank", world - 1);
  straggler.group = fields.word(json, "group_id");
  straggler.group_name = fields.text(json, "group");
  straggler.median = age_in(fields, json, "median_ns");
  straggler.others = age_in(fields, json, "others_ns");
  straggler.operations = fields.word(json, "operations");
  return straggler;
}

}  // namespace

Json snapshot_json(const blame::Snapshot& snapshot) {
  Json ranks = Json::array();
  for (std::uint32_t rank = 0; rank < snapshot.ranks.size(); ++rank)
    if (snapshot.ranks[rank].local) ranks.push_back(rank_facts_json(snapshot, rank));
  Json waits = Json::array();
  for (const blame::Wait& wait : snapshot.waits) waits.push_back(wait_facts_json(snapshot, wait));
  Json queued = Json::array();
  for (const blame::Snapshot::Queued& each : snapshot.queued)
    queued.push_back({{"place", key_json(each.place)}, {"part", missing_json(each.part)}});
  Json reached = Json::array();
  for (const blame::SpanKey& key : snapshot.reached) reached.push_back(key_json(key));
  Json stragglers = Json::array();
  for (const blame::Straggler& straggler : snapshot.stragglers)
    stragglers.push_back({{"rank", straggler.rank},
                          {"group_id", straggler.group},
                          {"group", straggler.group_name},
                          {"median_ns", straggler.median.count()},
                          {"others_ns", straggler.others.count()},
                          {"operations", straggler.operations}});
  return {{"patience_ns", snapshot.patience.count()},
          {"ranks", std::move(ranks)},
          {"waits", std::move(waits)},
          {"queued", std::move(queued)},
          {"reached", std::move(reached)},
          {"stragglers", std::move(stragglers)}};
}

Result<blame::Snapshot> snapshot_in(const Json& json, std::uint32_t world) {
  Fields fields("the snapshot of an engine");
  blame::Snapshot snapshot;
  snapshot.ranks.resize(world);
  snapshot.patience = age_in(fields, json, "patience_ns");
  for (const Json& rank : fields.list(json, "ranks")) read_rank(rank, snapshot, fields);
  for (const Json& wait : fields.list(json, "waits")) snapshot.waits.push_back(wait_in(wait, world, fields));
  for (const Json& each : fields.list(json, "queued"))
    snapshot.queued.push_back(
        {key_in(Fields::at(each, "place"), fields), missing_in(Fields::at(each, "part"), world, fields)});
  for (const Json& each : fields.list(json, "reached")) snapshot.reached.push_back(key_in(each, fields));
  for (const Json& each : fields.list(json, "stragglers"))
    snapshot.stragglers.push_back(straggler_in(each, world, fields));
  if (!fields.why().ok()) return fail(fields.why());
  return snapshot;
}

}  // namespace muster::control
