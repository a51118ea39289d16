#include "daemon/supervisor/jobs/memory_shares.hpp"

#include <algorithm>

namespace muster::supervisor {

bool MemoryShares::adopt(Account who, shm::Descriptor page) {
  auto adopted = shm::MemoryPage::adopt(std::move(page));
  return adopted && Account(adopted->uid(), adopted->container()) == who &&
         pages_.emplace(who, *std::move(adopted)).second;
}

bool MemoryShares::adopt_job(Account who, std::uint64_t job) {
  const auto it = pages_.find(who);
  return it != pages_.end() && it->second.find_again(job);
}

Result<bool> MemoryShares::enter(Account who, std::uint64_t job) {
  auto it = pages_.find(who);
  const bool is_new = it == pages_.end();
  if (is_new) {
    MUSTER_ASSIGN_OR_RETURN(
        auto page, shm::MemoryPage::create(who.uid, who.container, governor_, shm::memory_headroom()));
    it = pages_.emplace(who, std::move(page)).first;
  }
  if (!it->second.give(job))
    return fail(Code::kNoResource, "{} has {} jobs, and no more can be counted; end one (`muster end`)",
                control::text_of(who), shm::kMemorySlots);
  return is_new;
}

bool MemoryShares::leave(Account who, std::uint64_t job) {
  const auto it = pages_.find(who);
  if (it == pages_.end()) return false;
  it->second.take_back(job);
  if (!it->second.empty()) return false;
  pages_.erase(it);
  return true;
}

const shm::MemoryPage* MemoryShares::page(Account who) const {
  const auto it = pages_.find(who);
  return it == pages_.end() ? nullptr : &it->second;
}

Shares MemoryShares::held() const {
  Shares held(limits_, governor_);
  for (const auto& [who, page] : pages_) held.enter(who, std::min(page.held(), held.share(who)));
  return held;
}

std::uint64_t MemoryShares::held_by(Account who, std::uint64_t job) const {
  const shm::MemoryPage* own = page(who);
  return own == nullptr ? 0 : own->held_by(job);
}

std::uint64_t MemoryShares::lacking(Account who, std::uint64_t bytes) const {
  const shm::MemoryPage* own = page(who);
  if (own == nullptr) return 0;
  const Shares shares = now();
  const std::uint64_t limit = shares.of(who) + shares.room(who);
  const std::uint64_t wanted = own->held() + std::min(bytes, UINT64_MAX / 2);
  return wanted > limit ? wanted - limit : 0;
}

Shares MemoryShares::now() const {
  Shares now(limits_, governor_);
  for (const auto& [who, page] : pages_) now.enter(who, std::min(page.held(), now.room(who)));
  return now;
}

void MemoryShares::refresh() {
  const Shares shares = now();
  for (auto& [who, page] : pages_) page.set_limits({shares.share(who), shares.of(who) + shares.room(who)});
}

}  // namespace muster::supervisor
