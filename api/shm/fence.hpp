// A fence with two unlike sides: the light one costs nothing, the heavy one orders both. It serves a Dekker
// handshake: one side publishes a word and then looks whether the other sleeps; the other says that it sleeps
// and then looks at the word. Both need a full fence between store and look. The publisher is in every
// operation, where a full fence waits for a cache line; membarrier(2) lets the sleeper pay for both.
//
// Source: Dice, Huang, Yang, "Asymmetric Dekker Synchronization" (2001); membarrier(2), GLOBAL_EXPEDITED,
// Linux 4.16: a full fence on every core that runs a thread of an enrolled process.
#pragma once

#include <atomic>

namespace muster::shm {

// Enrols this process at the first call; later calls repeat the result. False: the kernel or a sandbox
// refuses, and the light side of this process must be a full fence. Any thread.
bool enrol_for_fences() noexcept;

// The light side. In an enrolled process it orders the compiler alone, and costs nothing.
inline void light_fence(bool enrolled) noexcept {
  if (enrolled)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The heavy side: one system call, microseconds. If the kernel refuses, it is a full fence of this thread
// alone. The publisher's enrolment is then refused too, unless a sandbox treats the two processes unlike; for
// that case a sleep that relies on this fence is bounded.
void heavy_fence() noexcept;

}  // namespace muster::shm
