// What each node of a job says of its part, for the commands that show the whole job.
#pragma once

#include "daemon/cli/question.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

// `text` comes from another node, and may be anything: who reads it checks.
struct NodeReport {
  std::string node;                  // empty: the only node of a job
  std::vector<std::uint32_t> ranks;  // of the job, on that node
  std::string text;                  // JSON, if `why` is empty
  std::string why;                   // there is no text
};

// Asks the daemon for the reports of all of the job's nodes: daemon/control/README.md, `reports`. They have
// half of the address's time. In the order of the nodes; never empty. Where no node has a report, the first
// one's trouble is that of the question.
OrTrouble<std::vector<NodeReport>> ask_reports(const DaemonAddress& address, const std::string& job,
                                               const std::string& kind, Attention* attention = nullptr);

// A node cannot be believed, or has not answered.
inline bool silent(const NodeReport& report) {
  return !report.why.empty();
}
// For JSON output: [{"node", "ranks", "why"}], of the nodes without a report.
Json unanswered_json(const std::vector<NodeReport>& reports);
// For people: a line for each of them.
std::string unanswered_text(const std::string& job, const std::vector<NodeReport>& reports);

}  // namespace muster::cli
