// The device backends of this build. Only registry.cpp knows which ones were compiled.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/host/pool.hpp"

#include <cstdint>
#include <memory>

namespace muster::device {

// "host", "cuda". Never null.
const char* kind_name(Kind kind) noexcept;

// Number of devices of that kind on this node: 1 for host. kUnsupported, with the reason, if the kind was not
// built or has no driver.
Result<std::uint32_t> device_count(Kind kind);

// Opens a device. `pool` serves a host device, whose ordinal is 0, and outlives it; a cuda device needs no
// pool. kUnsupported: the kind was not built or has no driver. kBadArgument: the node does not have that
// ordinal, or a host device gets no pool.
Result<std::unique_ptr<Device>> open(Kind kind, std::uint32_t ordinal, host::Pool* pool);

}  // namespace muster::device
