#include "api/shm/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::shm {
namespace {

bool membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

bool enrol_for_fences() noexcept {
  // A child of fork() keeps its parent's enrolment; exec ends it.
  static const bool enrolled = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  return enrolled;
}

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  static_cast<void>(membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED));
}

}  // namespace muster::shm
