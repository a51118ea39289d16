// Device memory, exported as a VMM descriptor where the GPU can.
#pragma once

#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

namespace muster::device::cuda {

// Zeroed on `stream`, which it waits for. Without virtual memory management, or without posix descriptors,
// the memory is plain and cannot be exported.
Result<std::unique_ptr<Memory>> allocate_memory(std::uint32_t ordinal, std::size_t bytes,
                                                cudaStream_t stream);

// A descriptor's memory, mapped a second time: what another process does with it. `bytes` as granted to the
// exporter.
Result<std::unique_ptr<Memory>> import_memory(std::uint32_t ordinal, int descriptor, std::size_t bytes);

}  // namespace muster::device::cuda
