// The entry to the cuda backend. It includes no CUDA header, because registry.cpp includes this one.
#pragma once

#include "kernels/device/device.hpp"

#include <cstdint>
#include <memory>

namespace muster::device::cuda {

// Number of GPUs of this node. kUnsupported, with the reason: there is no usable driver.
Result<std::uint32_t> device_count();

// Opens GPU `ordinal` of those that CUDA shows to this process (CUDA_VISIBLE_DEVICES), in its primary
// context. `depth`: pieces of work in flight per stream; more are refused with kBusy. kUnsupported: no
// driver. kBadArgument: no such ordinal. kDevice: the GPU does not answer.
Result<std::unique_ptr<Device>> open_device(std::uint32_t ordinal, std::uint32_t depth = 1024);

}  // namespace muster::device::cuda
