// Host memory that another process can map: a sealed memfd, committed to its last byte before it is returned.
#pragma once

#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace muster::device::host {

// Zeroed memory in this process and behind a descriptor, sealed against shrinking, growing and further seals.
// The limits of process, cgroup and node are compared first, because the kernel answers memory beyond them
// with the OOM killer, a SIGBUS or a SIGXFSZ instead of an error.
Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes);

// Memory of another process, as Device::import says. That process can still punch holes, which read as zeros.
// It cannot shrink the file, so no access here raises a SIGBUS.
Result<std::unique_ptr<Memory>> import_shared(int descriptor, std::uint64_t first, std::uint64_t bytes);

}  // namespace muster::device::host
