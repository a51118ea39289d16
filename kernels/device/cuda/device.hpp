// The cuda backend's door. No CUDA header here: registry.cpp includes it in every build that has the backend.
#pragma once

#include "kernels/device/device.hpp"

#include <cstdint>
#include <memory>

namespace muster::device::cuda {

struct DeviceOptions {
  std::uint32_t depth = 1024;  // pieces of work in flight per stream; more is kBusy
};

// GPUs of this node. kUnsupported, with the reason, where there is no usable driver.
Result<std::uint32_t> device_count();

// GPU `ordinal` of those CUDA shows to this process (CUDA_VISIBLE_DEVICES), in its primary context.
// kUnsupported without a driver, kBadArgument for an ordinal that is not there, kDevice where the GPU does
// not answer.
Result<std::unique_ptr<Device>> open_device(std::uint32_t ordinal, const DeviceOptions& options = {});

}  // namespace muster::device::cuda
