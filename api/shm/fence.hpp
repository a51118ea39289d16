// A fence with two unlike sides: one costs nothing, the other orders both. For handshakes in which one side
// is in every operation and the other is about to sleep: "I publish, then look whether you sleep" against "I
// say that I sleep, then look at what you publish" (Dekker). Between store and look both need a full fence,
// which on the side that publishes is a wait for a cache line; membarrier(2) makes the sleeper pay for both.
//
// Source: Dice, Huang, Yang, "Asymmetric Dekker Synchronization" (2001); membarrier(2), GLOBAL_EXPEDITED,
// Linux 4.16: a full fence on every core that runs a thread of an enrolled process.
#pragma once

#include <atomic>

namespace muster::shm {

// Enrols this process, once; later calls only say what came of it. False: the kernel or a sandbox refuses,
// and the light side of this process must be a full fence. Any thread.
bool enrol_for_fences() noexcept;

// The side that costs nothing, in a process that is enrolled: order for the compiler alone.
inline void light_fence(bool enrolled) noexcept {
  if (enrolled)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The side that pays: one system call, microseconds. Where the kernel refuses it is a full fence of this
// thread alone; who enrols there is refused too, unless a sandbox tells processes apart, and a sleep that
// relies on this is bounded for that reason.
void heavy_fence() noexcept;

}  // namespace muster::shm
