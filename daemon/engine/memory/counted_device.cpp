#include "daemon/engine/memory/counted_device.hpp"

#include "daemon/control/descriptor_count.hpp"

#include <algorithm>

#include <sys/resource.h>

namespace muster::engine {

class CountedDevice::Counted final : public device::Memory {
 public:
  Counted(std::unique_ptr<device::Memory> memory, Count held, std::vector<MemoryCharge> charges)
      : charges_(std::move(charges)), memory_(std::move(memory)), held_(std::move(held)) {
    held_->fetch_add(1);
  }
  ~Counted() override {
    memory_.reset();  // closes its descriptor before the count falls
    held_->fetch_sub(1);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  std::byte* data() const noexcept override { return memory_->data(); }
  std::size_t bytes() const noexcept override { return memory_->bytes(); }
  int descriptor() const noexcept override { return memory_->descriptor(); }

 private:
  std::vector<MemoryCharge> charges_;  // destroyed after the memory
  std::unique_ptr<device::Memory> memory_;
  Count held_;
};

CountedDevice::Options CountedDevice::beside(std::uint32_t ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 0;
  const std::uint64_t taken = control::kDescriptorsOfProcess + control::kDescriptorsPerRank * ranks;
  const std::uint64_t left = limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
  return {std::max<std::uint64_t>(left, ranks), limit.rlim_cur};
}

Status CountedDevice::check() const {
  if (const std::uint64_t held = bound_.held->load(); held >= bound_.options.memories_max)
    return failure(
        Code::kNoResource,
        "the job's memory has {} descriptors, and the engine's open-files limit of {} leaves no more "
        "beside its ranks; free imported or named buffers, raise limits.arena_segment, or raise the "
        "limit (ulimit -n, LimitNOFILE)",
        held, bound_.options.open_files);
  return {};
}

std::unique_ptr<device::Memory> CountedDevice::count(std::unique_ptr<device::Memory> memory,
                                                     std::vector<MemoryCharge> charges) const {
  return std::make_unique<Counted>(std::move(memory), bound_.held, std::move(charges));
}

Result<std::unique_ptr<device::Memory>> CountedDevice::allocate(std::size_t bytes) {
  MUSTER_RETURN_IF_ERROR(check());
  std::vector<MemoryCharge> charges(2);
  MUSTER_ASSIGN_OR_RETURN(charges[0], MemoryAccount::charge(bound_.account, bytes));
  MUSTER_ASSIGN_OR_RETURN(auto memory, device_->allocate(bytes));
  // The bytes that the device has added to fill whole pages.
  MUSTER_ASSIGN_OR_RETURN(charges[1], MemoryAccount::charge(bound_.account, memory->bytes() - bytes));
  return count(std::move(memory), std::move(charges));
}

Result<std::unique_ptr<device::Memory>> CountedDevice::import(int descriptor, std::uint64_t first,
                                                              std::uint64_t bytes) {
  MUSTER_RETURN_IF_ERROR(check());
  std::vector<MemoryCharge> charges(1);  // for pages that are committed here, even of memory made elsewhere
  MUSTER_ASSIGN_OR_RETURN(charges[0], MemoryAccount::charge(bound_.account, bytes));
  MUSTER_ASSIGN_OR_RETURN(auto memory, device_->import(descriptor, first, bytes));
  return count(std::move(memory), std::move(charges));
}

}  // namespace muster::engine
