// muster doctor: reports whether this machine is fit to run jobs, and how to make it so.
#pragma once

#include "api/shm/headroom.hpp"
#include "daemon/cli/local/doctor_paths.hpp"
#include "daemon/cli/question.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

// Whether the user has named the daemon. A named daemon must be there.
enum class DaemonNamed : std::uint8_t { kNo, kYes };

// kFailed if a check fails; a warning is no failure.
int run_doctor(const DaemonAddress& address, DaemonNamed named, Output output);

// The inputs of the checks. A value that could not be read is absent.
struct MachineFacts {
  std::uint64_t open_files = 0;  // the soft limit
  std::uint64_t open_files_hard = 0;
  bool sealed_memory = false;              // memfd_create with sealing
  bool noexec_memory = false;              // also with MFD_NOEXEC_SEAL
  std::optional<std::uint64_t> shm_bytes;  // /dev/shm
  std::string huge_pages;  // for shared memory, of transparent_hugepage/shmem_enabled; empty: not known
  std::uint64_t memory_bytes = 0;          // that a process here may use
  std::string memory_remedy;               // for what limits it
  std::uint64_t machine_memory_bytes = 0;  // of the machine
  std::uint32_t cores = 0;                 // on which this process may run
  std::optional<double> cpu_quota;         // cores' worth of time, by cgroup
  std::uint32_t ranks = 0;                 // of the daemon's largest job; 0: there is none
  std::string clock_source;
  std::string kernel;
  bool pidfd = false;
  bool futex = false;
  std::string governor;  // empty: not known
  std::string runtime_directory;
  std::string runtime_trouble;  // empty: none
  bool runtime_serves = false;  // it works in spite of its trouble
  std::string daemon_trouble;   // why it does not answer; empty: it answers
  bool daemon_named = false;
  std::string daemon_version;
  bool daemon_speaks_other = false;  // it has another version of the interface
  struct NetworkFacts {
    std::string name;
    std::string says;     // what it is
    std::string trouble;  // why it cannot be used; empty: it can
  };
  std::vector<NetworkFacts> networks;  // libraries that move bytes between nodes
  ClusterPaths cluster;                // to the other nodes
};

// The CPU time that the cgroups of this process allow, in cores (version 1 or 2).
std::optional<double> cpu_quota(const shm::Headroom::Files& files = {});

std::vector<Check> examine(const MachineFacts& facts);

}  // namespace muster::cli
