#include "daemon/engine/memory/rank_devices.hpp"

#include "api/base/assert.hpp"
#include "daemon/engine/memory/counted_device.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

Result<RankDevices> RankDevices::open(const World& world, std::span<const device::DeviceId> ids,
                                      const device::Pool& pool, std::shared_ptr<MemoryAccount> account) {
  MUSTER_ASSERT(ids.empty() || ids.size() == world.local_count());
  const CountedDevice::Bound bound(CountedDevice::beside(world.local_count()), std::move(account));
  RankDevices devices(world);
  std::vector<device::DeviceId> opened;
  for (std::uint32_t local = 0; local < world.local_count(); ++local) {
    const device::DeviceId id = ids.empty() ? device::DeviceId() : ids[local];
    const auto known = std::find(opened.begin(), opened.end(), id);
    const auto index = static_cast<std::size_t>(known - opened.begin());
    if (known == opened.end()) {
      MUSTER_ASSIGN_OR_RETURN(auto device, device::open(id, pool));
      devices.devices_.push_back(std::make_unique<CountedDevice>(std::move(device), bound));
      opened.push_back(id);
    }
    devices.table_[LocalRank(local)] = devices.devices_[index].get();
  }
  return devices;
}

bool RankDevices::all(bool device::Device::Info::*property) const {
  return std::all_of(devices_.begin(), devices_.end(),
                     [property](const auto& device) { return device->info().*property; });
}

std::string RankDevices::text() const {
  std::string text;
  for (const auto& device : devices_) text += (text.empty() ? "" : ", ") + device->info().name;
  return text;
}

}  // namespace muster::engine
