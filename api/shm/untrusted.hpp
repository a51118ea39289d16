// Words that two processes share: which process reads one, which writes it, and with which ordering.
//
// Untrusted<T> is a word as its reader sees it, Published<T> the same word as its only writer sees it.
// Neither gives out a reference, a pointer or a conversion, so neither compiler nor user can read a word
// twice. The atomics are a policy: the same source runs on std::atomic_ref, on a memory-model checker, and on
// memory that changes between two reads.
#pragma once

#include <atomic>
#include <type_traits>

namespace muster::shm {

// The policy of the product. A word is a plain field of the structs in layout.hpp.
struct StdAtomics {
  template<class T>
  using Word = T;

  // A read-only mapping is read through this too: a lock-free load never writes.
  template<class T>
  static T load(const T* word, std::memory_order order) noexcept {
    static_assert(std::atomic_ref<T>::is_always_lock_free);
    return std::atomic_ref<T>(const_cast<T&>(*word)).load(order);
  }
  template<class T>
  static void store(T* word, T value, std::memory_order order) noexcept {
    std::atomic_ref<T>(*word).store(value, order);
  }
  template<class T>
  static void add(T* word, T value, std::memory_order order) noexcept {
    std::atomic_ref<T>(*word).fetch_add(value, order);
  }
};

// Owns    nothing; the word outlives it.
// Thread  any.
// Bound   each call is one atomic load, never two.
// Fails   never; the value is whatever the other side wrote, so check the copy.
template<class T, class Policy = StdAtomics>
class Untrusted {
 public:
  using Word = typename Policy::template Word<T>;
  static_assert(std::is_trivially_copyable_v<T>);

  explicit Untrusted(const Word* word) noexcept : word_(word) {}

  T load() const noexcept { return Policy::template load<T>(word_, std::memory_order::relaxed); }
  T load_acquire() const noexcept { return Policy::template load<T>(word_, std::memory_order::acquire); }
  // Sequentially consistent, for sleep handshakes.
  T load_ordered() const noexcept { return Policy::template load<T>(word_, std::memory_order::seq_cst); }

 private:
  const Word* word_;
};

// Owns    nothing; the word outlives it.
// Thread  that of the word's only writer; add() may be called by several.
// Bound   each call is one atomic operation. There is no load: the writer keeps its values in private memory.
// Fails   never.
template<class T, class Policy = StdAtomics>
class Published {
 public:
  using Word = typename Policy::template Word<T>;
  static_assert(std::is_trivially_copyable_v<T>);

  explicit Published(Word* word) noexcept : word_(word) {}

  void store(T value) noexcept { Policy::template store<T>(word_, value, std::memory_order::relaxed); }
  void store_release(T value) noexcept {
    Policy::template store<T>(word_, value, std::memory_order::release);
  }
  void store_ordered(T value) noexcept {
    Policy::template store<T>(word_, value, std::memory_order::seq_cst);
  }
  void add(T value) noexcept { Policy::template add<T>(word_, value, std::memory_order::relaxed); }
  void add_ordered(T value) noexcept { Policy::template add<T>(word_, value, std::memory_order::seq_cst); }

 private:
  Word* word_;
};

}  // namespace muster::shm
