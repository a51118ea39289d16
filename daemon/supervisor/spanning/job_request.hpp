// A request for a temporary job: the node where a user has made it sends it to the job's other nodes. Each
// node's administrator sets what the request leaves out, such as limits.
#pragma once

#include "daemon/control/job.hpp"
#include "daemon/supervisor/base/options.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Names of nodes, and how many ranks run there: the first ranks on the first node.
using NodeShares = std::vector<std::pair<std::string, std::uint32_t>>;

// [{"node": NAME, "ranks": N}, …]. kBadArgument.
Result<NodeShares> shares_of(const control::Json& nodes);
// As this node sees it. kBadArgument: a node that is not in the roster or stands twice, fewer than two, or
// not this one. `placement`: if its ranks do not fill the nodes in that order, the number of its node for
// each rank, in two bytes, big-endian; else empty.
Result<World> world_of(const NodeShares& shares, std::span<const std::uint8_t> placement,
                       const Options& options);

control::Json request_of(const control::JobSpec& spec);
// kBadArgument, as job_asked_for() and world_of().
Result<control::JobSpec> job_of_request(const control::Json& request, const Options& options);

}  // namespace muster::supervisor
