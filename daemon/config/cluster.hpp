// Cluster: the nodes and the jobs that a cluster file describes.
//
// The parser checks rules about one value, or two values of one file. The scheduler checks whether the
// degrees of a mesh multiply to its world, and the name of a flattened dim. The marks let its complaint point
// at the line.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/nodes/link_costs.hpp"
#include "daemon/config/diagnostic.hpp"
#include "daemon/config/job_rules.hpp"
#include "daemon/config/key.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::config {

struct Cluster {
  enum class DeviceKind : std::uint8_t { kHost, kCuda, kAuto };  // kAuto: cuda if there is one, else host
  // The hosts of one entry of `nodes`; they are alike.
  struct NodeEntry {
    Marked<std::vector<std::string>> hosts;
    Marked<std::vector<std::string>> addresses;  // one for each host; empty: their names are
    std::vector<std::string>
        interfaces;  // patterns (api/base/network/interface_choice.hpp); empty: the cluster's
    DeviceKind device_kind = DeviceKind::kAuto;
    Marked<std::uint32_t> device_count;
  };
  struct Degree {
    std::string dim;
    std::int64_t size = 1;  // -1 (dp_shard alone): the part of the world that the other dims leave
  };
  struct FlattenEntry {
    Marked<std::string> name;
    std::vector<Marked<std::string>> dims;
  };
  struct MeshEntry {
    Mark mark;
    std::vector<Marked<Degree>> dims;  // in the order written
    std::vector<FlattenEntry> flatten;
  };
  struct JobEntry {
    Marked<std::string> name;
    MeshEntry mesh;
    std::optional<Nanos> deadline;         // else defaults.deadline of the daemon
    std::optional<std::uint32_t> digests;  // else defaults.digests of the daemon
    bool reproducible = false;
    ClaimRule claim = ClaimRule::kOwner;
    std::optional<Marked<std::uint32_t>> ranks;  // else Cluster::devices()
  };
  Source source;
  std::string name;
  std::uint16_t port = 0;               // on which the daemons of all nodes listen for each other
  std::string network;                  // one of kNetworks; empty: none
  LinkCosts link;                       // by which the nodes of a job choose algorithms
  std::vector<std::string> interfaces;  // patterns, for nodes without their own
  std::string tie_breaker;              // a host; empty: none
  std::vector<NodeEntry> nodes;
  std::vector<JobEntry> jobs;

  struct Host {
    std::string name;
    std::string address;
    std::uint32_t devices = 0;
    std::vector<std::string> interfaces;  // patterns
    std::string interfaces_key;           // that gave them: "cluster.interfaces", "nodes[0].interfaces"
  };
  // All hosts, in the order written.
  std::vector<Host> hosts() const;
  // Devices of all nodes together.
  std::uint64_t devices() const;
  // The world of a job: its number of ranks.
  std::uint64_t ranks(const JobEntry& job) const;
  // A diagnostic for a complaint that a later check makes about the place `mark`.
  Diagnostic diagnostic(Mark mark, std::string path, Complaint complaint) const;
};

std::span<const Key> cluster_keys();

tl::expected<Cluster, Diagnostics> parse_cluster(Source source);

}  // namespace muster::config
