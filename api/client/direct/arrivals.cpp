#include "api/client/direct/arrivals.hpp"

#include <atomic>

namespace muster::client {

void Arrivals::move_to(std::uint64_t position) {
  position_ = position;
  offset_ = (position & 1) * shm::kSlotBytes;
}

void Arrivals::withdraw() {
  shm::Published<std::uint64_t>(&own_slot()->position).store(0);
  std::atomic_thread_fence(std::memory_order_release);
}

}  // namespace muster::client
