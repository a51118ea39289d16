// OwnStreams: the streams on which the transport's own work between the pieces of steps runs, such as packing
// and folding.
#pragma once

#include "api/base/result.hpp"
#include "kernels/device/device.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    a stream of each priority on each device that was asked for. Thread  that of the launches.
// Bound   the devices.
// Fails   of: as Device::open_stream().
class OwnStreams {
 public:
  using ByPriority = std::vector<std::unique_ptr<device::Stream>>;

  Result<const ByPriority*> of(device::Device& device) {
    if (const auto known = devices_.find(&device); known != devices_.end()) return &known->second;
    ByPriority streams;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(device::Priority::kLow); ++i) {
      MUSTER_ASSIGN_OR_RETURN(auto stream, device.open_stream(static_cast<device::Priority>(i)));
      streams.push_back(std::move(stream));
    }
    return &devices_.emplace(&device, std::move(streams)).first->second;
  }

 private:
  std::map<device::Device*, ByPriority> devices_;
};

}  // namespace muster::transport::span
