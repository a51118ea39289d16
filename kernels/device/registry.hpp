// The device backends of this build. Only registry.cpp knows which ones were compiled.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/pool.hpp"

#include <cstdint>
#include <memory>

namespace muster::device {

// "host", "cuda". Never null.
const char* kind_name(Kind kind) noexcept;

// A device of a node; that of every node unless it is said otherwise.
struct DeviceId {
  Kind kind = Kind::kHost;
  std::uint32_t ordinal = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

// Number of devices of that kind on this node: 1 for host. kUnsupported, with the reason, if the kind was not
// built or has no driver.
Result<std::uint32_t> device_count(Kind kind);

// Opens a device. `pool` serves host devices, and outlives them. Those of all ordinals below kRanksOnNodeMax
// share its workers. kUnsupported: the kind was not built or has no driver. kBadArgument: the node does not
// have that ordinal.
Result<std::unique_ptr<Device>> open(const DeviceId& id, const Pool& pool);

}  // namespace muster::device
