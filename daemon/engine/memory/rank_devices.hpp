// RankDevices: the device of each local rank, from the engine's creation to its end.
#pragma once

#include "api/base/world.hpp"
#include "daemon/engine/memory/memory_account.hpp"
#include "kernels/device/registry.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace muster::engine {

// Owns    the devices. Ranks for which the same one is named share it.
// Thread  as the devices.
// Bound   the memories of all devices together: as a CountedDevice.
// Fails   open: as device::open().
class RankDevices {
 public:
  // `ids`: by local rank; empty: the default of DeviceId for each. The pool outlives the devices.
  static Result<RankDevices> open(const World& world, std::span<const device::DeviceId> ids,
                                  const device::Pool& pool, std::shared_ptr<MemoryAccount> account);

  const RankTable<device::Device*>& table() const { return table_; }
  device::Device& first() const { return *devices_.front(); }
  // Whether Device::Info has this of all of them.
  bool all(bool device::Device::Info::*property) const;
  // The name of each device, for people.
  std::string text() const;

 private:
  explicit RankDevices(const World& world) : table_(world) {}

  std::vector<std::unique_ptr<device::Device>> devices_;
  RankTable<device::Device*> table_;
};

}  // namespace muster::engine
