// Cost: what a stretch of code asks of heap, locks and kernel, counted on the calling thread.
//
// A program that links it has the heap's functions (under a sanitizer operator new alone), pthread_mutex_lock
// and pthread_mutex_trylock of its own, which count and go on to the usual ones.
#pragma once

#include <cstdint>

namespace muster::test {

struct Cost {
  std::uint64_t allocations = 0;
  std::uint64_t locks = 0;         // taken, or tried
  std::uint64_t system_calls = 0;  // at most 1, where kernel and build allow it: see counts_system_calls()
  long first_system_call = -1;     // its number
};

// Whether this kernel and this build can tell of system calls (syscall user dispatch, Linux 5.11; no
// sanitizer).
bool counts_system_calls();

// Owns    the counting, from construction to stop(). One at a time on a thread.
// Thread  counts the calling thread alone.
// Bound   the first system call in the stretch is counted, and made (where it is not x86-64: not made); what
//         comes after it is not counted.
// Fails   never.
class CostCounter {
 public:
  CostCounter();
  ~CostCounter();
  CostCounter(const CostCounter&) = delete;
  CostCounter& operator=(const CostCounter&) = delete;
  Cost stop();

 private:
  bool running_ = true;
};

}  // namespace muster::test
