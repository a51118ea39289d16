// A job whose engines on several nodes reach each other.
#pragma once

#include "daemon/control/job.hpp"

#include <cstdint>
#include <string>

namespace muster::test {

// `networks_directory`: where the modules of networks lie. Its ranks need little memory: all nodes are on
// one machine.
inline void connect_nodes(control::JobSpec& job, const std::string& network,
                          const std::string& networks_directory) {
  job.network = network;
  job.networks_directory = networks_directory;
  job.arena_bytes_max = std::uint64_t{64} << 20;
  job.segment_bytes = std::uint64_t{1} << 20;
}

}  // namespace muster::test
