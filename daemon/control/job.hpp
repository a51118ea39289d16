// JobSpec: the facts that an engine needs about its job, as the supervisor sends them.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/collective/node_costs.hpp"
#include "api/base/network/interface_choice.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/nodes/link_costs.hpp"
#include "api/base/result.hpp"
#include "api/base/world.hpp"
#include "daemon/config/job_rules.hpp"
#include "daemon/control/identity.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace muster::control {

using Json = nlohmann::json;

constexpr std::uint32_t kWorldMax = 1u << 16;                   // ranks of a job
constexpr std::uint32_t kNodesMax = 4096;                       // of a job
constexpr std::size_t kNodeNameBytesMax = 253;                  // as a host name
constexpr std::size_t kPathBytesMax = 4095;                     // of a folder in a spec
constexpr std::size_t kInterfacesMax = 4096;                    // of each list of an InterfaceRule
constexpr std::uint64_t kJobBytesMax = std::uint64_t{1} << 47;  // of any memory size in a spec
constexpr Nanos kJobDurationMax = std::chrono::hours(24);       // of any duration in a spec

using config::ClaimRule;
using config::CoreRule;

struct JobSpec {
  std::string name;  // 1..63 characters: letters, digits, . _ -
  World world;       // its ranks
  std::string mesh;  // "dp_shard=2,tp=2"
  std::vector<std::pair<std::string, std::vector<std::string>>> flatten;  // name → member dims
  Identity owner;
  std::string scope;  // tells jobs of one name apart (scope_of()); empty: of the daemon's own user
  ClaimRule claim = ClaimRule::kOwner;
  std::uint64_t epoch = 0;         // new for each creation; never 0
  Nanos deadline{60'000'000'000};  // default of every operation
  std::uint32_t workers = 0;       // 0: the cores granted
  CoreRule cores = CoreRule::kRanks;
  Nanos idle_spin{50'000};
  std::uint64_t arena_bytes_max = std::uint64_t{8} << 30;         // per rank
  std::uint64_t segment_bytes = std::uint64_t{64} << 20;          // most of an arena's new segment
  std::uint32_t buffers_max = 4096;                               // per rank
  std::uint32_t plans_max = 16384;                                // per rank
  std::uint32_t groups_made_max = 64;                             // that a rank holds, beside the mesh
  std::uint32_t starts_per_lane_max = config::kStartsPerLaneMax;  // of a rank, without an outcome yet
  NodeCosts costs;                                                // by which its members choose algorithms
  std::uint32_t digests = 0;       // each so many shared results are compared once
  std::string reports_directory;   // for reports of passed deadlines; empty: none are written
  std::string network;             // by which its nodes reach each other, of config::kNetworks; empty: none
  std::string networks_directory;  // where the modules of networks lie; absolute
  std::string asked_on;  // the node where a user has asked for a job of several nodes; empty: for no such job
  LinkCosts link;        // by which its nodes choose algorithms
  InterfaceRule interfaces;    // of this node, for `network`
  std::string tie_breaker;     // the node whose side may shrink a group at exactly half; empty: none
  std::string endpoint;        // at which people ask about it, unless that is the usual one
  bool ends_with_run = false;  // and so does its daemon
  bool gathered = false;       // its ranks have come to several nodes, and only they have asked for it
  bool reproducible = false;   // results are the same bits whatever node a rank is on

  // Names one job of this node: "train" of the daemon's own user, "train@1000" of another.
  std::string id() const { return scope.empty() ? name : name + "@" + scope; }
  // It is in no cluster file, and ends with its requester.
  bool temporary() const { return !asked_on.empty(); }
};

Json to_json(const NodeCosts& costs);
Result<NodeCosts> costs_from_json(const Json& json);  // kBadArgument naming the field

Json to_json(const JobSpec& spec);
// kBadArgument naming the field. The sender is a process of ours, but its bytes are checked all the same.
Result<JobSpec> job_from_json(const Json& json);

// The job that `owner` asks for: name, world, mesh, flatten and claim from `asked`, the rest from `defaults`,
// whose owner is the daemon's user. kBadArgument for any other field (limits are the administrator's), and as
// job_from_json(). `world`: where its ranks run; nullptr: all on this node.
Result<JobSpec> job_asked_for(const Json& asked, const JobSpec& defaults, const Actor& owner,
                              const World* world = nullptr);

// kBadArgument unless `name` can name a job.
Status check_job_name(const std::string& name);

}  // namespace muster::control
