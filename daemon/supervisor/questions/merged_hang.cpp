#include "daemon/supervisor/questions/merged_hang.hpp"

#include "api/base/blame/merge.hpp"
#include "daemon/control/texts/hang_report.hpp"
#include "daemon/control/texts/node_snapshot.hpp"

#include <cstdint>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

// A report of a deadline as a command line reads it. Its author may be another node.
bool is_deadline(const Json& latest) {
  if (!latest.is_object() || !latest.contains("ago_ns") || !latest.contains("report")) return false;
  const Json& report = latest.at("report");
  return latest.at("ago_ns").is_number_unsigned() && report.is_object() && report.contains("text") &&
         report.at("text").is_string();
}

blame::NodePart part_of(const World& world, NodeIndex node, const PeerQuestions::NodeAnswer& answer) {
  blame::NodePart part;
  part.node = answer.node;
  for (std::uint32_t rank = 0; rank < world.size(); ++rank)
    if (world.node_of(Rank(rank)) == node) part.ranks.push_back(rank);
  part.heard = answer.heard;
  auto snapshot =
      answer.result ? control::snapshot_in(*answer.result, world.size()) : fail(answer.result.error());
  if (snapshot)
    part.snapshot = *std::move(snapshot);
  else
    part.why = snapshot.error().message();
  return part;
}

}  // namespace

Json merged_hang(const std::string& job, const World& world,
                 const std::vector<PeerQuestions::NodeAnswer>& answers, const std::string& endpoint) {
  std::vector<blame::NodePart> parts;
  Json latest;
  for (std::uint32_t n = 0; n < answers.size(); ++n) {
    const PeerQuestions::NodeAnswer& answer = answers[n];
    parts.push_back(part_of(world, NodeIndex(n), answer));
    if (!answer.result) continue;
    const auto its = answer.result->find("latest_deadline");
    if (its != answer.result->end() && is_deadline(*its) &&
        (latest.is_null() || its->at("ago_ns") < latest.at("ago_ns")))
      latest = *its;
  }
  blame::Snapshot merged = blame::merge(job, parts);
  merged.asked.endpoint = endpoint;
  Json report = control::report_json(merged, blame::assess(merged));
  report["latest_deadline"] = std::move(latest);
  return report;
}

}  // namespace muster::supervisor
