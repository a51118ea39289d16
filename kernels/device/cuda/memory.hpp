// Device memory, exported as a VMM descriptor if the GPU supports that.
#pragma once

#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

namespace muster::device::cuda {

// Memory that is zeroed on `stream`; returns after that. If the GPU has no virtual memory management or no
// posix descriptors, the memory is plain and cannot be exported.
Result<std::unique_ptr<Memory>> allocate_memory(std::uint32_t ordinal, std::size_t bytes,
                                                cudaStream_t stream);

// Maps the memory behind a descriptor of another process. `bytes`: as granted to the exporter.
Result<std::unique_ptr<Memory>> import_memory(std::uint32_t ordinal, int descriptor, std::size_t bytes);

}  // namespace muster::device::cuda
