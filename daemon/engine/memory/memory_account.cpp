#include "daemon/engine/memory/memory_account.hpp"

#include "api/shm/untrusted.hpp"
#include "daemon/control/administrators.hpp"
#include "daemon/control/identity.hpp"

namespace muster::engine {

using shm::Published;
using shm::Untrusted;

MemoryCharge::~MemoryCharge() {
  if (account_) account_->give_back(bytes_);
}

Result<std::shared_ptr<MemoryAccount>> MemoryAccount::attach(const shm::Descriptor& page,
                                                             std::uint32_t slot) {
  MUSTER_RETURN_IF_ERROR(shm::check_memory(page, shm::kMemoryPageBytes));
  if (slot >= shm::kMemorySlots) return fail(Code::kProtocol, "a memory page has no slot {}", slot);
  MUSTER_ASSIGN_OR_RETURN(shm::Mapping mapping,
                          shm::Mapping::map(page, shm::kMemoryPageBytes, shm::Mapping::Access::kReadWrite));
  MUSTER_ASSIGN_OR_RETURN(const shm::MemoryPage::Header header, shm::check_memory_page(page, mapping));
  return std::shared_ptr<MemoryAccount>(new MemoryAccount(std::move(mapping), header, slot));
}

Result<MemoryCharge> MemoryAccount::charge(const std::shared_ptr<MemoryAccount>& account,
                                           std::uint64_t bytes) {
  if (account) MUSTER_RETURN_IF_ERROR(account->take(bytes));
  return MemoryCharge(account, bytes);
}

std::uint64_t* MemoryAccount::word() const {
  return &reinterpret_cast<shm::MemoryPage::Slot*>(page_.writable() + shm::kMemorySlotsOffset)[slot_].bytes;
}

Status MemoryAccount::take(std::uint64_t bytes) {
  const auto* words =
      reinterpret_cast<const shm::MemoryPage::Limits*>(page_.data() + shm::kMemoryLimitsOffset);
  const shm::MemoryPage::Limits limits{Untrusted<std::uint64_t>(&words->share).load_acquire(),
                                       Untrusted<std::uint64_t>(&words->limit).load_acquire()};
  if (bytes > limits.limit) return refusal(bytes, held_ + shm::bytes_of_others(page_, slot_), limits);
  const std::uint64_t own = held_.fetch_add(bytes) + bytes;
  Published<std::uint64_t>(word()).add_ordered(bytes);
  const std::uint64_t held = own + shm::bytes_of_others(page_, slot_);
  if (held <= limits.limit) return {};
  give_back(bytes);
  if (own <= limits.limit) short_of_ = bytes;
  return refusal(bytes, held - bytes, limits);
}

void MemoryAccount::give_back(std::uint64_t bytes) {
  held_.fetch_sub(bytes);
  Published<std::uint64_t>(word()).add_ordered(0 - bytes);
}

Status MemoryAccount::refusal(std::uint64_t bytes, std::uint64_t held,
                              const shm::MemoryPage::Limits& limits) const {
  const bool governs = header_.container == 0 && (header_.uid == 0 || header_.uid == header_.governor);
  const bool share = !governs && limits.limit >= limits.share;
  return failure(
      Code::kNoResource,
      "{} more bytes do not fit: the jobs of {} hold {} and may hold {}, {}; free buffers, "
      "end a job (`muster end`), or {}",
      bytes, control::text_of(control::Account(header_.uid, header_.container)), held, limits.limit,
      share ? "its share (limits.memory_per_user_max)" : "what the node has for them (limits.memory_max)",
      governs
          ? "raise it"
          : fmt::format("ask an administrator ({}) to raise it", control::administrators(header_.governor)));
}

}  // namespace muster::engine
