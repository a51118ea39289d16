// One diagnosis of a job out of what its nodes have answered. Pure: api/base/blame/merge.hpp merges.
#pragma once

#include "api/base/world.hpp"
#include "daemon/supervisor/questions/peer_questions.hpp"

#include <string>
#include <vector>

namespace muster::supervisor {

// The answers of all nodes to `snapshot`, in the order of the world's nodes: the report of
// daemon/control/README.md, `hang`. A node whose answer is an error, or cannot be read, is one that does not
// answer. The latest deadline is that of the node where it passed last. `endpoint`: as JobSpec::endpoint.
control::Json merged_hang(const std::string& job, const World& world,
                          const std::vector<PeerQuestions::NodeAnswer>& answers, const std::string& endpoint);

}  // namespace muster::supervisor
