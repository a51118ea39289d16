// An atomics policy on Relacy's simulated memory, so that the headers of api/shm run under a checker of the
// C++ memory model. Include the headers under test before this one: Relacy replaces words such as `new` and
// `assert` by macros.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include <relacy/relacy.hpp>

namespace muster::models {

// Which ordering an access really gets. Exact is what the code says; the others are planted bugs.
struct Exact {
  static constexpr bool kWeakSeqCst = false;
  static constexpr bool kRelaxed = false;
};
// As if someone had found acquire and release good enough for the sleep handshakes.
struct WithoutSeqCst {
  static constexpr bool kWeakSeqCst = true;
  static constexpr bool kRelaxed = false;
};
// As if publication needed no ordering at all.
struct Relaxed {
  static constexpr bool kWeakSeqCst = true;
  static constexpr bool kRelaxed = true;
};

template<class Orders>
struct RelacyAtomics {
  template<class T>
  using Word = rl::atomic<T>;

  template<class T>
  static T load(const rl::atomic<T>* word, std::memory_order order) {
    return word->load(load_order(order), $);
  }
  template<class T>
  static void store(rl::atomic<T>* word, T value, std::memory_order order) {
    word->store(value, store_order(order), $);
  }
  template<class T>
  static void add(rl::atomic<T>* word, T value, std::memory_order order) {
    word->fetch_add(value,
                    Orders::kRelaxed || order == std::memory_order::relaxed ? rl::mo_relaxed
                    : Orders::kWeakSeqCst                                   ? rl::mo_acq_rel
                                                                            : rl::mo_seq_cst,
                    $);
  }

 private:
  static rl::memory_order load_order(std::memory_order order) {
    if (Orders::kRelaxed || order == std::memory_order::relaxed) return rl::mo_relaxed;
    if (Orders::kWeakSeqCst || order == std::memory_order::acquire) return rl::mo_acquire;
    return rl::mo_seq_cst;
  }
  static rl::memory_order store_order(std::memory_order order) {
    if (Orders::kRelaxed || order == std::memory_order::relaxed) return rl::mo_relaxed;
    if (Orders::kWeakSeqCst || order == std::memory_order::release) return rl::mo_release;
    return rl::mo_seq_cst;
  }
};

template<class T>
void clear(rl::atomic<T>* word) {
  word->store(T{0}, rl::mo_relaxed, $);
}

// A futex as the kernel implements it: the comparison and the queueing are one step, between full barriers.
template<class T>
void futex_wait(rl::atomic<T>* word, T seen) {
  rl::context& c = rl::ctx();
  c.sched();
  c.atomic_thread_fence_seq_cst();
  T now{};
  {
    rl::preemption_disabler atomically(c);
    now = word->load(rl::mo_seq_cst, $);
  }
  if (now == seen) word->wait(c, false, false, $);
}

template<class T>
void futex_wake(rl::atomic<T>* word) {
  rl::context& c = rl::ctx();
  c.sched();
  c.atomic_thread_fence_seq_cst();
  word->wake(c, INT_MAX, $);
}

// The doorbell: an eventfd under EPOLLET. A ring is remembered until a wait takes it.
class Doorbell {
 public:
  void reset() { clear(&rung_); }
  void ring() {
    rung_.store(1, rl::mo_seq_cst, $);
    futex_wake(&rung_);
  }
  void wait() {
    while (rung_.exchange(0, rl::mo_seq_cst, $) == 0) futex_wait(&rung_, 0u);
  }

 private:
  rl::atomic<std::uint32_t> rung_;
};

}  // namespace muster::models
