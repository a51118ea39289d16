#include "daemon/supervisor/memory_shares.hpp"

#include <algorithm>

namespace muster::supervisor {

bool MemoryShares::adopt(std::uint32_t uid, shm::Descriptor page) {
  auto adopted = shm::MemoryPage::adopt(std::move(page));
  return adopted && adopted->uid() == uid && pages_.emplace(uid, *std::move(adopted)).second;
}

bool MemoryShares::adopt_job(std::uint32_t uid, std::uint64_t job) {
  const auto it = pages_.find(uid);
  return it != pages_.end() && it->second.find_again(job);
}

Result<bool> MemoryShares::enter(std::uint32_t uid, std::uint64_t job) {
  auto it = pages_.find(uid);
  const bool is_new = it == pages_.end();
  if (is_new) {
    MUSTER_ASSIGN_OR_RETURN(auto page, shm::MemoryPage::create(uid, governor_, shm::memory_headroom()));
    it = pages_.emplace(uid, std::move(page)).first;
  }
  if (!it->second.give(job))
    return fail(Code::kNoResource, "user {} has {} jobs, and no more can be counted; end one (`muster end`)",
                uid, shm::kMemorySlots);
  return is_new;
}

bool MemoryShares::leave(std::uint32_t uid, std::uint64_t job) {
  const auto it = pages_.find(uid);
  if (it == pages_.end()) return false;
  it->second.take_back(job);
  if (!it->second.empty()) return false;
  pages_.erase(it);
  return true;
}

const shm::MemoryPage* MemoryShares::page(std::uint32_t uid) const {
  const auto it = pages_.find(uid);
  return it == pages_.end() ? nullptr : &it->second;
}

Shares MemoryShares::held() const {
  Shares held(limits_, governor_);
  for (const auto& [uid, page] : pages_) held.enter(uid, std::min(page.held(), held.share(uid)));
  return held;
}

void MemoryShares::refresh() {
  Shares now(limits_, governor_);
  for (const auto& [uid, page] : pages_) now.enter(uid, std::min(page.held(), now.room(uid)));
  for (auto& [uid, page] : pages_) page.set_limits({now.share(uid), now.of(uid) + now.room(uid)});
}

}  // namespace muster::supervisor
