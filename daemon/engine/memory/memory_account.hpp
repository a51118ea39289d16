// MemoryAccount: counts the memory that this engine's job takes from its user's share of the node.
#pragma once

#include "api/base/memory_budget.hpp"
#include "api/shm/memory_page.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace muster::engine {

class MemoryAccount;

// Bytes that are taken from an account.
//
// Owns    the bytes, until it is destroyed. Without an account it counts nothing.
// Thread  as a value.  Bound  -  Fails  never.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(std::shared_ptr<MemoryAccount> account, std::uint64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}
  MemoryCharge(MemoryCharge&& other) noexcept { swap(other); }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MemoryCharge();

  // Takes over the bytes of `more`, which is of the same account.
  void add(MemoryCharge more) { bytes_ += std::exchange(more.bytes_, 0); }

 private:
  void swap(MemoryCharge& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<MemoryAccount> account_;
  std::uint64_t bytes_ = 0;
};

// Owns    a mapping of the user's page (api/shm/memory_page.hpp), and one slot there.
// Thread  any.
// Bound   the limit in the page; a charge loads one word of each slot.
// Fails   attach: PROTOCOL, VERSION, NO_RESOURCE. charge: NO_RESOURCE, naming the memory of each holder, and
//         the key of the limit.
class MemoryAccount final : public MemoryBudget {
 public:
  static Result<std::shared_ptr<MemoryAccount>> attach(const shm::Descriptor& page, std::uint32_t slot);
  // Without an account it charges nothing.
  static Result<MemoryCharge> charge(const std::shared_ptr<MemoryAccount>& account, std::uint64_t bytes);
  Status take(std::uint64_t bytes) override;
  void give_back(std::uint64_t bytes) override;
  // The bytes of a charge that was refused since the last call, and would fit if the account's other jobs
  // held less. 0: there is none.
  std::uint64_t take_shortage() { return short_of_.exchange(0); }

 private:
  friend class MemoryCharge;
  MemoryAccount(shm::Mapping page, const shm::MemoryPage::Header& header, std::uint32_t slot)
      : page_(std::move(page)), header_(header), slot_(slot) {}
  Status refusal(std::uint64_t bytes, std::uint64_t held, const shm::MemoryPage::Limits& limits) const;
  std::uint64_t* word() const;

  shm::Mapping page_;
  shm::MemoryPage::Header header_;  // a copy that was checked
  std::uint32_t slot_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> short_of_{0};
};

}  // namespace muster::engine
