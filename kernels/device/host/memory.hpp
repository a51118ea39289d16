// Host memory that another process can map: a sealed memfd, committed to its last byte before anybody sees
// it.
#pragma once

#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace muster::device::host {

// Zeroed memory in this process and behind a descriptor, sealed against shrinking, growing and further seals.
// The limits of process, cgroup and node are compared first: what goes beyond them is answered by the kernel
// with the OOM killer, a SIGBUS or a SIGXFSZ, not with an error.
Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes);

// Memory this process could use at most: the node's, or less by a cgroup limit.
std::uint64_t memory_total();

// A bound on memory, what is free under it now, and how a person names it.
struct MemoryRoom {
  std::uint64_t limit = 0;
  std::uint64_t free = 0;
  std::string where;
};

// Where the kernel keeps its tables; a test has its own.
struct KernelFiles {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

// The memory.max (version 2) or memory.limit_in_bytes (version 1) of this process's cgroup and its ancestors
// with the least room. File pages the kernel can drop count as free. Nothing where no cgroup limits memory.
std::optional<MemoryRoom> cgroup_room(const KernelFiles& files);
// MemAvailable of MemTotal. Nothing where it cannot be read.
std::optional<MemoryRoom> node_room(const KernelFiles& files);

}  // namespace muster::device::host
