// SpscQueue: a bounded queue of a single producer and a single consumer, without a lock.
#pragma once

#include "api/base/assert.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace muster {

// A first-in first-out queue. It takes its storage once, at construction, and touches it only as it fills.
// Both ends are positions that only grow (Lamport, 1977): a value put at position n is taken at position n.
//
// Owns    its values, which need no end.
// Thread  push: the producer, one at a time. front, pop: the consumer, one at a time. The rest: any; a thread
//         that sees a position sees all that was written before it.
// Bound   the capacity given; 0 is legal and always full.
// Fails   push says false when full. pop asserts on an empty queue.
template<class T>
class SpscQueue {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit SpscQueue(std::size_t capacity)
      : capacity_(capacity), items_(std::allocator<T>{}.allocate(capacity), Release{capacity}) {}

  // False when full; nothing is added then.
  [[nodiscard]] bool push(const T& value) {
    if (full()) return false;
    const std::uint64_t at = pushed_.load(std::memory_order_relaxed);
    std::construct_at(items_.get() + at % capacity_, value);
    pushed_.store(at + 1, std::memory_order_release);
    return true;
  }

  // The oldest value. The queue must not be empty. Unchecked: a check would fetch the producer's cache line.
  const T& front() const { return items_.get()[popped_.load(std::memory_order_relaxed) % capacity_]; }
  void pop() {
    MUSTER_ASSERT(!empty());
    popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Values put, and values taken, so far.
  std::uint64_t pushed() const noexcept { return pushed_.load(std::memory_order_acquire); }
  std::uint64_t popped() const noexcept { return popped_.load(std::memory_order_acquire); }
  // Other threads than producer and consumer may get an answer that is already out of date.
  bool empty() const noexcept { return popped() == pushed(); }
  bool full() const noexcept {
    const std::uint64_t taken = popped();
    return pushed() - taken >= capacity_;
  }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  struct Release {
    std::size_t capacity;
    void operator()(T* items) const noexcept { std::allocator<T>{}.deallocate(items, capacity); }
  };

  const std::size_t capacity_;
  const std::unique_ptr<T, Release> items_;
  alignas(64) std::atomic<std::uint64_t> pushed_{0};
  alignas(64) std::atomic<std::uint64_t> popped_{0};
};

}  // namespace muster
