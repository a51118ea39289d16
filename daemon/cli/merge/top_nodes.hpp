// TopNodes: the part of `muster top` that shows a job's other nodes.
#pragma once

#include "daemon/cli/merge/node_reports.hpp"
#include "daemon/control/job_look.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::cli {

// Owns    the latest look at each node.
// Thread  one.
// Bound   one question a period, which takes twice kPatience at most.
// Fails   never: a node that does not answer, or whose answer cannot be true, is shown as such.
class TopNodes {
 public:
  static constexpr Nanos kPeriod = std::chrono::seconds(1);
  static constexpr Nanos kPatience = std::chrono::milliseconds(500);

  // `own`: the node whose counters are read without asking. `period`: the least time between two questions.
  TopNodes(std::string own, Nanos period) : own_(std::move(own)), period_(period) {}

  // Asks the daemon for the figures of all nodes, unless it did so within the last period. If the user ends
  // the wait, the trouble has the exit code, and no text.
  std::optional<Trouble> look(const DaemonAddress& address, const std::string& job, Instant now,
                              Attention& attention);
  // Takes the reports of nodes.
  void take(std::vector<NodeReport> reports);
  // No node has reported anything, for that reason.
  void take_silence(const std::string& why);

  // Adds the other nodes' rates to those of this node. A rank and a made group get a `node`. `nodes` gets the
  // engine of each node, and `unanswered` the nodes of which nothing is known.
  void add_to(Json& now) const;

 private:
  struct Seen {
    std::vector<std::uint32_t> ranks;
    std::optional<control::JobLook> latest;
    Json rates;
    std::string why;  // there are none
  };
  const std::string own_;
  const Nanos period_;
  std::optional<Instant> asked_;
  std::map<std::string, Seen> seen_;
  std::string silence_;
};

// Lines before the table: the nodes, and which of them are silent. Empty for a job of one node.
std::string top_nodes_text(const Json& now);

}  // namespace muster::cli
