#include "daemon/supervisor/spanning/job_request.hpp"

#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

namespace muster::supervisor {

using control::Json;

Result<NodeShares> shares_of(const Json& nodes) {
  if (!nodes.is_array() || nodes.size() > control::kNodesMax)
    return fail(Code::kBadArgument, "job: nodes must be a list of at most {} nodes", control::kNodesMax);
  NodeShares shares;
  for (const Json& entry : nodes) {
    const bool whole = entry.is_object() && entry.contains("node") && entry["node"].is_string() &&
                       entry.contains("ranks") && entry["ranks"].is_number_unsigned() &&
                       entry["ranks"] >= 1u && entry["ranks"] <= control::kWorldMax;
    if (!whole)
      return fail(Code::kBadArgument, "job: each of its nodes needs a name, and ranks from 1 to {}",
                  control::kWorldMax);
    shares.emplace_back(entry["node"].get<std::string>(), entry["ranks"].get<std::uint32_t>());
  }
  return shares;
}

namespace {

// Each rank's node, as `placement` says; each node keeps its number of ranks.
Status place(std::span<const std::uint8_t> placement, std::vector<std::uint32_t>& node_of) {
  std::vector<std::uint32_t> placed;
  for (std::size_t i = 0; i + 1 < placement.size(); i += 2)
    placed.push_back(std::uint32_t{placement[i]} << 8 | placement[i + 1]);
  std::vector<std::uint32_t> counted = placed;
  std::sort(counted.begin(), counted.end());
  if (placement.size() % 2 != 0 || counted != node_of)  // which rises
    return failure(Code::kBadArgument, "job: its placement does not give each node its number of ranks");
  node_of = std::move(placed);
  return {};
}

}  // namespace

Result<World> world_of(const NodeShares& shares, std::span<const std::uint8_t> placement,
                       const Options& options) {
  const Roster& roster = options.roster;
  if (roster.alone())
    return fail(Code::kBadArgument,
                "this daemon is no node of a cluster: `jobs_from` names a file of one host");
  std::vector<std::string> names;
  std::vector<std::uint32_t> node_of;
  std::uint64_t ranks = 0;
  for (const auto& [node, share] : shares) {
    if (roster.find(node) == nullptr)
      return fail(Code::kBadArgument, "node {} is no host of cluster {} (`muster status{}`)",
                  node.substr(0, 64), roster.cluster, shm::endpoint_option(options.job_defaults.endpoint));
    ranks += share;
    if (ranks > control::kWorldMax)
      return fail(Code::kBadArgument, "a job can have {} ranks", control::kWorldMax);
    node_of.insert(node_of.end(), share, static_cast<std::uint32_t>(names.size()));
    names.push_back(node);
  }
  const auto here = std::find(names.begin(), names.end(), roster.here);
  if (here == names.end())
    return fail(Code::kBadArgument, "node {} is not among the job's nodes; start it on one of them",
                roster.here);
  if (names.size() < 2) return fail(Code::kBadArgument, "a job of one node needs no list of nodes");
  if (!placement.empty()) MUSTER_RETURN_IF_ERROR(place(placement, node_of));
  return World::build(names, node_of, NodeIndex(static_cast<std::uint32_t>(here - names.begin())));
}

namespace {

// Empty: its ranks fill the nodes in their order.
std::vector<std::uint8_t> placement_of(const World& world) {
  std::vector<std::uint8_t> placement;
  bool rises = true;
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    const std::uint32_t node = world.node_of(Rank(rank)).value;
    rises = rises && (rank == 0 || node >= world.node_of(Rank(rank - 1)).value);
    placement.push_back(static_cast<std::uint8_t>(node >> 8));
    placement.push_back(static_cast<std::uint8_t>(node));
  }
  return rises ? std::vector<std::uint8_t>() : placement;
}

}  // namespace

Json request_of(const control::JobSpec& spec) {
  const Json all = control::to_json(spec);
  Json request{{"owner_uid", spec.owner.uid},
               {"asked_on", spec.asked_on},
               {"deadline_ns", spec.deadline.count()},
               {"digests", spec.digests}};
  if (spec.gathered) request["gathered"] = true;
  if (const auto key = control::key_in(spec.scope); !key.empty()) request["key"] = key;
  if (auto placement = placement_of(spec.world); !placement.empty())
    request["placement"] = Json::binary(std::move(placement));
  for (const char* field : {"name", "world", "mesh", "flatten", "claim"})
    request["spec"][field] = all.at(field);
  std::vector<std::uint32_t> shares(spec.world.nodes().size());
  for (std::uint32_t rank = 0; rank < spec.world.size(); ++rank)
    ++shares[spec.world.node_of(Rank(rank)).value];
  for (std::uint32_t node = 0; node < shares.size(); ++node)
    request["nodes"].push_back({{"node", spec.world.nodes()[node]}, {"ranks", shares[node]}});
  return request;
}

Result<control::JobSpec> job_of_request(const Json& request, const Options& options) {
  const auto number = [&](const char* name, std::uint64_t most) -> Result<std::uint64_t> {
    const auto field = request.find(name);
    if (field == request.end() || !field->is_number_unsigned() || field->get<std::uint64_t>() > most)
      return fail(Code::kBadArgument, "job: {} must be a number up to {}", name, most);
    return field->get<std::uint64_t>();
  };
  if (!request.is_object() || !request.contains("spec") || !request.contains("nodes"))
    return fail(Code::kBadArgument, "job: a wish needs a spec and nodes");
  MUSTER_ASSIGN_OR_RETURN(const NodeShares shares, shares_of(request["nodes"]));
  std::vector<std::uint8_t> placement;
  if (const auto said = request.find("placement"); said != request.end()) {
    if (!said->is_binary()) return fail(Code::kBadArgument, "job: its placement must be bytes");
    placement = said->get_binary();
  }
  MUSTER_ASSIGN_OR_RETURN(const World world, world_of(shares, placement, options));
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t uid, number("owner_uid", kMost));
  control::Actor owner(static_cast<std::uint32_t>(uid));
  if (request.contains("key")) {
    owner.key = said_text(request, "key");
    if (control::key_in(control::scope_of(owner, control::kNoUid)).empty())
      return fail(Code::kBadArgument, "job: its key must be {} digits of a digest", control::kKeyDigestChars);
  }
  MUSTER_ASSIGN_OR_RETURN(control::JobSpec spec,
                          control::job_asked_for(request["spec"], options.job_defaults, owner, &world));
  MUSTER_ASSIGN_OR_RETURN(
      const std::uint64_t deadline,
      number("deadline_ns", static_cast<std::uint64_t>(control::kJobDurationMax.count())));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t digests, number("digests", kMost));
  spec.deadline = Nanos(static_cast<std::int64_t>(deadline));
  spec.digests = static_cast<std::uint32_t>(digests);
  spec.network = options.roster.network;
  spec.tie_breaker = options.roster.tie_breaker;
  const auto gathered = request.find("gathered");
  spec.gathered = gathered != request.end() && gathered->is_boolean() && gathered->get<bool>();
  const auto asked_on = request.find("asked_on");
  const auto nodes = spec.world.nodes();
  if (asked_on == request.end() || std::find(nodes.begin(), nodes.end(), *asked_on) == nodes.end())
    return fail(Code::kBadArgument, "job: it must have been asked for on one of its nodes");
  spec.asked_on = asked_on->get<std::string>();
  return spec;
}

}  // namespace muster::supervisor
