// CountedDevice: a device whose memories are limited in number and charged to the job's user.
//
// Each memory has a descriptor: a segment of an arena, a name, an import. Without a bound they would take
// the descriptors that the next rank needs to attach.
#pragma once

#include "daemon/engine/memory/memory_account.hpp"
#include "kernels/device/device.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the device; it shares the bound with others, and with its memories, which may live longer.
// Thread  as the device's; any thread may let go of a memory.
// Bound   memories_max at once, and the bytes that the account allows.
// Fails   allocate, import: kNoResource naming the limit, or what the device says.
class CountedDevice final : public device::Device {
 public:
  struct Options {
    std::uint64_t memories_max = 0;
    std::uint64_t open_files = 0;  // the limit from which memories_max follows, for its message
  };
  // Descriptors that the open-files limit leaves beside those of the job's ranks; at least one for each rank.
  static Options beside(std::uint32_t ranks);

  using Count = std::shared_ptr<std::atomic<std::uint64_t>>;
  // The devices of a job have this in common. Without an account, bytes are not counted.
  struct Bound {
    explicit Bound(Options at_most, std::shared_ptr<MemoryAccount> charged = nullptr)
        : options(at_most), account(std::move(charged)) {}
    Options options;
    std::shared_ptr<MemoryAccount> account;
    Count held = std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  CountedDevice(std::unique_ptr<device::Device> device, Bound bound)
      : device_(std::move(device)), bound_(std::move(bound)) {}

  const device::Device::Info& info() const noexcept override { return device_->info(); }
  Result<std::unique_ptr<device::Stream>> open_stream(device::Priority priority) override {
    return device_->open_stream(priority);
  }
  Result<std::unique_ptr<device::Event>> create_event() override { return device_->create_event(); }
  Result<std::unique_ptr<device::Memory>> allocate(std::size_t bytes) override;
  Result<std::unique_ptr<device::Memory>> import(int descriptor, std::uint64_t first,
                                                 std::uint64_t bytes) override;

 private:
  class Counted;

  Status check() const;
  std::unique_ptr<device::Memory> count(std::unique_ptr<device::Memory> memory,
                                        std::vector<MemoryCharge> charges) const;

  std::unique_ptr<device::Device> device_;
  Bound bound_;
};

}  // namespace muster::engine
