// The device backends of this build, written out. registry.cpp is the one place that knows which were
// compiled.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/host/pool.hpp"

#include <cstdint>
#include <memory>

namespace muster::device {

// "host", "cuda". Never null.
const char* kind_name(Kind kind) noexcept;

// Devices of that kind on this node: 1 for host. kUnsupported, with the reason, where the kind was not built
// or has no driver.
Result<std::uint32_t> device_count(Kind kind);

// Opens one. `pool` serves a host device, which has ordinal 0 only, and outlives it; a cuda device needs
// none. kUnsupported where the kind was not built or has no driver; kBadArgument for an ordinal the node does
// not have, or a missing pool.
Result<std::unique_ptr<Device>> open(Kind kind, std::uint32_t ordinal, host::Pool* pool);

}  // namespace muster::device
