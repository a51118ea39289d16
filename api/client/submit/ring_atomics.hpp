// The atomics of the client's side of the ring. In builds with fault points, a test can end the process at
// each store.
#pragma once

#include <atomic>

#include "api/base/fault_point.hpp"
#include "api/shm/segment.hpp"

namespace muster::client {

#if !defined(MUSTER_FAULT_POINTS)

using RingAtomics = shm::StdAtomics;
using shm::ring_writer;

#else

// A record's words are stored relaxed, its sequence with release order, the tail sequentially consistent.
struct RingAtomics : shm::StdAtomics {
  template<class T>
  static void store(T* word, T value, std::memory_order order) noexcept {
    if (order == std::memory_order::release) MUSTER_FAULT_POINT("ring.slot_due");
    if (order == std::memory_order::seq_cst) MUSTER_FAULT_POINT("ring.tail_due");
    shm::StdAtomics::store(word, value, order);
    if (order == std::memory_order::relaxed) MUSTER_FAULT_POINT("ring.slot_begun");
    if (order == std::memory_order::release) MUSTER_FAULT_POINT("ring.slot_set");
    if (order == std::memory_order::seq_cst) MUSTER_FAULT_POINT("ring.tail_set");
  }
};

inline shm::RingWriter<RingAtomics> ring_writer(const shm::SubmissionView& submission,
                                                const shm::CompletionView& completion) {
  shm::SubmissionHeader* header = submission.writable_header();
  const shm::CompletionSegment* page = completion.page();
  return shm::RingWriter<RingAtomics>({.tail = &header->tail,
                                       .slots = submission.writable_slots(),
                                       .head = &page->head,
                                       .engine_asleep = &page->engine_asleep},
                                      shm::kRingCapacity);
}

#endif

}  // namespace muster::client
