#include "api/shm/memory_page.hpp"

#include "api/shm/untrusted.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace muster::shm {
namespace {

constexpr std::uint64_t kHeldMax = UINT64_MAX / 2;

const MemoryPage::Slot* slots_of(const Mapping& mapping) {
  return reinterpret_cast<const MemoryPage::Slot*>(mapping.data() + kMemorySlotsOffset);
}

std::uint64_t bytes_in(const MemoryPage::Slot& slot) {
  return std::min(Untrusted<std::uint64_t>(&slot.bytes).load_ordered(), kHeldMax);
}

}  // namespace

Result<MemoryPage::Header> check_memory_page(const Descriptor& memory, const Mapping& mapping) {
  MUSTER_RETURN_IF_ERROR(check_memory(memory, kMemoryPageBytes));
  MemoryPage::Header header;
  std::memcpy(&header, mapping.data(), sizeof header);
  if (header.magic != kMagicMemoryPage)
    return muster::fail(Code::kProtocol, "the memory starts with 0x{:x}: it is no memory page", header.magic);
  if (header.abi_version != kAbiVersion)
    return muster::fail(Code::kVersion, "the memory page is of version {}, this program of {}",
                        header.abi_version, kAbiVersion);
  return header;
}

std::uint64_t bytes_of_others(const Mapping& mapping, std::uint32_t slot) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < kMemorySlots; ++i)
    if (i != slot) sum = std::min(sum + bytes_in(slots_of(mapping)[i]), kHeldMax);
  return sum;
}

Result<MemoryPage> MemoryPage::create(std::uint32_t uid, std::uint64_t container, std::uint32_t governor,
                                      const Headroom& headroom) {
  MUSTER_ASSIGN_OR_RETURN(Descriptor memory, create_memory("muster-memory", kMemoryPageBytes, headroom));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping,
                          Mapping::map(memory, kMemoryPageBytes, Mapping::Access::kReadWrite));
  auto* header = new (mapping.writable()) Header;
  header->abi_version = kAbiVersion;
  header->uid = uid;
  header->container = container;
  header->governor = governor;
  header->magic = kMagicMemoryPage;
  return MemoryPage(std::move(memory), std::move(mapping), uid, container);
}

// Checks the size before it maps: a file shorter than a page could end this process with SIGBUS.
Result<MemoryPage> MemoryPage::adopt(Descriptor memory) {
  MUSTER_RETURN_IF_ERROR(check_memory(memory, kMemoryPageBytes));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping,
                          Mapping::map(memory, kMemoryPageBytes, Mapping::Access::kReadWrite));
  MUSTER_ASSIGN_OR_RETURN(const Header header, check_memory_page(memory, mapping));
  return MemoryPage(std::move(memory), std::move(mapping), header.uid, header.container);
}

MemoryPage::Slot* MemoryPage::slot(std::uint32_t index) const {
  return reinterpret_cast<Slot*>(mapping_.writable() + kMemorySlotsOffset) + index;
}

void MemoryPage::set_limits(const Limits& limits) {
  auto* words = reinterpret_cast<Limits*>(mapping_.writable() + kMemoryLimitsOffset);
  Published<std::uint64_t>(&words->share).store_release(limits.share);
  Published<std::uint64_t>(&words->limit).store_release(limits.limit);
}

bool MemoryPage::give(std::uint64_t job) {
  const auto free = std::find(given_.begin(), given_.end(), false);
  if (free == given_.end()) return false;
  const auto index = static_cast<std::uint32_t>(free - given_.begin());
  *free = true;
  slots_.emplace(job, index);
  Published<std::uint64_t>(&slot(index)->bytes).store_ordered(0);
  Published<std::uint64_t>(&slot(index)->job).store_release(job);
  return true;
}

bool MemoryPage::find_again(std::uint64_t job) {
  for (std::uint32_t index = 0; index < kMemorySlots; ++index) {
    if (given_[index] || Untrusted<std::uint64_t>(&slot(index)->job).load_acquire() != job) continue;
    given_[index] = true;
    slots_.emplace(job, index);
    return true;
  }
  return false;
}

void MemoryPage::take_back(std::uint64_t job) {
  const auto it = slots_.find(job);
  if (it == slots_.end()) return;
  Published<std::uint64_t>(&slot(it->second)->job).store_release(0);
  Published<std::uint64_t>(&slot(it->second)->bytes).store_ordered(0);
  given_[it->second] = false;
  slots_.erase(it);
}

std::optional<std::uint32_t> MemoryPage::slot_of(std::uint64_t job) const {
  const auto it = slots_.find(job);
  return it == slots_.end() ? std::nullopt : std::optional(it->second);
}

std::uint64_t MemoryPage::held_by(std::uint64_t job) const {
  const auto index = slot_of(job);
  return index ? std::min(bytes_in(*slot(*index)), kHeldMax) : 0;
}

std::uint64_t MemoryPage::held() const {
  std::uint64_t sum = 0;
  for (const auto& [job, index] : slots_) sum = std::min(sum + bytes_in(*slot(index)), kHeldMax);
  return sum;
}

}  // namespace muster::shm
