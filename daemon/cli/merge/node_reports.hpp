// The reports of all nodes of a job, for the commands that show the whole job.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

// `text` comes from another node, and may be anything: its reader checks it.
struct NodeReport {
  std::string node;                  // empty: the only node of a job
  std::vector<std::uint32_t> ranks;  // of the job, on that node
  std::string text;                  // JSON, if `why` is empty
  std::string why;                   // there is no text
};

// Asks the daemon for the reports of all of the job's nodes: daemon/control/README.md, `reports`. The nodes
// have half of the address's time. The reports are in the order of the nodes, and never empty. If no node has
// a report, the first node's trouble is that of the question.
OrTrouble<std::vector<NodeReport>> ask_reports(const DaemonAddress& address, const std::string& job,
                                               const std::string& kind, Attention* attention = nullptr);

// The node has not answered, or its answer cannot be believed.
inline bool silent(const NodeReport& report) {
  return !report.why.empty();
}
// For JSON output: [{"node", "ranks", "why"}], of the nodes without a report.
Json unanswered_json(const std::vector<NodeReport>& reports);
// The same as text: a line for each of these nodes.
std::string unanswered_text(const std::string& job, const std::vector<NodeReport>& reports);

}  // namespace muster::cli
