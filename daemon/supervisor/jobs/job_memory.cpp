#include "daemon/supervisor/jobs/job_memory.hpp"

#include "daemon/supervisor/base/kept_names.hpp"

namespace muster::supervisor {

Status JobMemory::enter(Account who, std::uint64_t job) {
  MUSTER_ASSIGN_OR_RETURN(const bool is_new, shares_.enter(who, job));
  if (is_new) store_.keep(memory_name(who), shares_.page(who)->descriptor());
  return {};
}

void JobMemory::leave(Account who, std::uint64_t job) {
  if (shares_.leave(who, job)) store_.forget(memory_name(who));
  refresh();
}

bool JobMemory::adopt(Account who, shm::Descriptor page) {
  if (shares_.page(who) != nullptr || !shares_.adopt(who, std::move(page))) return false;
  store_.know(memory_name(who), shares_.page(who)->descriptor());
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

std::optional<JobMemory::Slot> JobMemory::place_of(Account who, std::uint64_t job) const {
  const shm::MemoryPage* page = shares_.page(who);
  const auto slot = page != nullptr ? page->slot_of(job) : std::nullopt;
  if (!slot) return std::nullopt;
  return Slot{page->descriptor().get(), *slot};
}

}  // namespace muster::supervisor
