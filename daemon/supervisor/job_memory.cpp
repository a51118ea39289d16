#include "daemon/supervisor/job_memory.hpp"

#include "daemon/supervisor/kept_names.hpp"

namespace muster::supervisor {

Status JobMemory::enter(std::uint32_t uid, std::uint64_t job) {
  MUSTER_ASSIGN_OR_RETURN(const bool is_new, shares_.enter(uid, job));
  if (is_new) store_.keep(memory_name(uid), shares_.page(uid)->descriptor());
  return {};
}

void JobMemory::leave(std::uint32_t uid, std::uint64_t job) {
  if (shares_.leave(uid, job)) store_.forget(memory_name(uid));
  refresh();
}

bool JobMemory::adopt(std::uint32_t uid, shm::Descriptor page) {
  if (shares_.page(uid) != nullptr || !shares_.adopt(uid, std::move(page))) return false;
  store_.know(memory_name(uid), shares_.page(uid)->descriptor());
  return true;
}

void JobMemory::refresh() {
  shares_.refresh();
  if (timer_ != 0 || shares_.empty()) return;
  timer_ = loop_.after(kPeriod, [this] {
    timer_ = 0;
    refresh();
  });
}

std::optional<JobMemory::Place> JobMemory::place_of(std::uint32_t uid, std::uint64_t job) const {
  const shm::MemoryPage* page = shares_.page(uid);
  const auto slot = page != nullptr ? page->slot_of(job) : std::nullopt;
  if (!slot) return std::nullopt;
  return Place{page->descriptor().get(), *slot};
}

}  // namespace muster::supervisor
