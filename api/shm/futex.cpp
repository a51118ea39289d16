#include "api/shm/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <ctime>

namespace muster::shm {

// The plain operations, not the _PRIVATE ones: those would not meet across processes. A relative FUTEX_WAIT
// timeout is measured on CLOCK_MONOTONIC.
void futex_wait(const std::uint32_t* word, std::uint32_t seen, Nanos limit) noexcept {
  if (limit.count() <= 0) return;
  constexpr std::int64_t kSecond = 1000000000;
  const timespec timeout{.tv_sec = limit.count() / kSecond, .tv_nsec = limit.count() % kSecond};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake(const std::uint32_t* word) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace muster::shm
