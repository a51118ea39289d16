#include "daemon/control/texts/hang_report.hpp"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

using blame::Snapshot;
using blame::Wait;

Json wait_json(const Snapshot& snapshot, const Wait& wait) {
  Json arrived = Json::array();
  for (const blame::Wait::Arrived& a : wait.arrived)
    arrived.push_back({{"rank", a.rank}, {"ago_ns", (snapshot.now - a.at).count()}});
  Json missing = Json::array();
  for (const blame::Wait::Missing& m : wait.missing) missing.push_back(m.rank);
  return {{"group", wait.group_name},
          {"group_id", wait.group},
          {"path", path_name(wait.path)},
          {"lane", wait.lane.empty() ? Json(nullptr) : Json(wait.lane)},
          {"number", wait.number},
          {"op", wait.operation.label},
          {"tag", wait.operation.tag ? Json(*wait.operation.tag) : Json(nullptr)},
          {"bytes", wait.operation.bytes},
          {"dtype", wait.operation.dtype},
          {"site", wait.operation.site},
          {"waiting_ns", (snapshot.now - wait.since).count()},
          {"arrived", arrived},
          {"missing", missing},
          {"inside", wait.inside},
          {"awaiting_readers", wait.awaiting},
          {"difference", wait.difference}};
}

Json straggler_json(const blame::Straggler& straggler) {
  return {{"rank", straggler.rank},
          {"group", straggler.group_name},
          {"group_id", straggler.group},
          {"median_ns", straggler.median.count()},
          {"others_ns", straggler.others.count()},
          {"operations", straggler.operations}};
}

Json rank_json(const Snapshot& snapshot, std::uint32_t number) {
  const blame::RankState& rank = snapshot.ranks[number];
  Json json{{"rank", number},       {"attached", rank.attached},
            {"pid", rank.pid},      {"process", blame::process_state_name(rank.process)},
            {"cgroup", rank.where}, {"heard_ns", nullptr},
            {"finished", nullptr},  {"lag", nullptr}};
  if (rank.lag) {
    json["lag"] = {{"group", rank.lag->figures.group_name},
                   {"group_id", rank.lag->figures.group},
                   {"median_ns", rank.lag->figures.median.count()},
                   {"operations", rank.lag->figures.operations},
                   {"histogram", rank.lag->histogram}};
  }
  if (!rank.node.empty()) json["node"] = rank.node;
  if (!rank.unknown.empty()) json["unknown"] = rank.unknown;
  if (rank.heard) json["heard_ns"] = (snapshot.now - *rank.heard).count();
  if (rank.finished)
    json["finished"] = {{"group", rank.finished->group},
                        {"op", rank.finished->label},
                        {"path", path_name(rank.finished->path)},
                        {"number", rank.finished->number},
                        {"ago_ns", (snapshot.now - rank.finished->at).count()}};
  return json;
}

}  // namespace

Json report_json(const Snapshot& snapshot, const blame::Report& report) {
  Json culprits = Json::array();
  for (const blame::Report::Culprit& culprit : report.culprits) {
    Json json = rank_json(snapshot, culprit.rank);
    json["verdict"] = blame::diagnosis_name(culprit.diagnosis);
    json["reason"] = culprit.reason;
    culprits.push_back(std::move(json));
  }
  Json circle = Json::array();
  for (const blame::Report::Link& link : report.circle) {
    Json json = wait_json(snapshot, snapshot.waits[link.wait]);
    json["rank"] = link.rank;
    json["waits_for"] = link.waits_for;
    json["certain"] = link.certain;
    json["stands"] = link.stands;
    circle.push_back(std::move(json));
  }
  Json waits = Json::array();
  for (const Wait& wait : snapshot.waits) waits.push_back(wait_json(snapshot, wait));
  Json stragglers = Json::array();
  for (const blame::Straggler& straggler : snapshot.stragglers)
    stragglers.push_back(straggler_json(straggler));
  Json ranks = Json::array();
  for (std::uint32_t rank = 0; rank < snapshot.ranks.size(); ++rank)
    if (snapshot.ranks[rank].local || !snapshot.ranks[rank].unknown.empty())
      ranks.push_back(rank_json(snapshot, rank));
  Json unanswered = Json::array();
  for (const blame::Snapshot::SilentNode& silent : snapshot.silent)
    unanswered.push_back({{"node", silent.node}, {"why", silent.why}, {"ranks", silent.ranks}});
  return {{"job", snapshot.job},
          {"verdict", blame::diagnosis_name(report.diagnosis)},
          {"confidence", blame::confidence_name(report.confidence)},
          {"wait", report.wait ? wait_json(snapshot, snapshot.waits[*report.wait]) : Json(nullptr)},
          {"culprits", culprits},
          {"circle", circle},
          {"ruled_out", report.ruled_out},
          {"next", report.next},
          {"waits", waits},
          {"ranks", ranks},
          {"stragglers", stragglers},
          {"unanswered", unanswered},
          {"text", blame::text_of(snapshot, report)}};
}

}  // namespace muster::control
