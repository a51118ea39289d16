#include "scheduler/run/plan.hpp"

#include <atomic>
#include <utility>

namespace muster::scheduler {

std::uint64_t next_plan_number() {
  static std::atomic<std::uint64_t> latest{0};
  return latest.fetch_add(1, std::memory_order_relaxed) + 1;
}

const std::shared_ptr<transport::Communicator::Prepared>& Plan::Prepared::add(Entry entry) {
  if (entries_.size() < kMax) return entries_.emplace_back(std::move(entry)).prepared;
  Entry& oldest = entries_[next_++ % kMax];
  oldest = std::move(entry);
  return oldest.prepared;
}

const char* Plan::label() const {
  if (const auto* k = kernel()) return k->kernel->name;
  return op_name(collective()->collective.op);
}

}  // namespace muster::scheduler
