// Containers whose capacity is fixed at start: a full one says so; it never waits and never allocates.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/ids.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace muster {

// At most N values in place; no heap.
//
// Owns    its values; pop_back and clear end them.
// Thread  one at a time.
// Bound   N.
// Fails   push_back says false when full. Asserts on a wrong index.
template<class T, std::size_t N>
class BoundedVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  // False when full; nothing is added then.
  [[nodiscard]] bool push_back(T value) {
    if (size_ == N) return false;
    items_[size_++] = std::move(value);
    return true;
  }
  void pop_back() {
    MUSTER_ASSERT(size_ > 0);
    items_[--size_] = T{};
  }
  void clear() {
    while (!empty()) pop_back();
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  static constexpr std::size_t capacity() { return N; }
  T& operator[](std::size_t i) {
    MUSTER_ASSERT(i < size_);
    return items_[i];
  }
  const T& operator[](std::size_t i) const {
    MUSTER_ASSERT(i < size_);
    return items_[i];
  }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }

 private:
  std::array<T, N> items_{};
  std::size_t size_ = 0;
};

// A first-in first-out queue. It reserves its storage once, at construction, and touches it only as it fills:
// a deep queue that stays short costs address space alone.
//
// Owns    its values; pop ends the oldest.
// Thread  one at a time.
// Bound   the capacity given; 0 is legal and always full.
// Fails   push says false when full. Asserts on an empty queue or a wrong index.
template<class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) { items_.reserve(capacity); }
  BoundedQueue(BoundedQueue&&) noexcept = default;
  BoundedQueue& operator=(BoundedQueue&&) noexcept = default;

  // False when full; nothing is added then.
  [[nodiscard]] bool push(T value) {
    if (full()) return false;
    const std::size_t at = place(size_++);
    if (at == items_.size())
      items_.push_back(std::move(value));  // never past the storage: places are used in order
    else
      items_[at] = std::move(value);
    return true;
  }
  T& front() {
    MUSTER_ASSERT(size_ > 0);
    return items_[head_];
  }
  const T& front() const {
    MUSTER_ASSERT(size_ > 0);
    return items_[head_];
  }
  // The i-th oldest.
  T& operator[](std::size_t i) {
    MUSTER_ASSERT(i < size_);
    return items_[place(i)];
  }
  const T& operator[](std::size_t i) const {
    MUSTER_ASSERT(i < size_);
    return items_[place(i)];
  }
  void pop() {
    MUSTER_ASSERT(size_ > 0);
    items_[head_] = T{};
    head_ = place(1);
    --size_;
  }
  T& back() { return (*this)[size_ - 1]; }
  // Takes the newest away.
  void pop_back() {
    MUSTER_ASSERT(size_ > 0);
    items_[place(--size_)] = T{};
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == capacity_; }
  std::size_t capacity() const { return capacity_; }

 private:
  std::size_t place(std::size_t i) const {
    const std::size_t at = head_ + i;  // i <= capacity
    return at < capacity_ ? at : at - capacity_;
  }

  std::vector<T> items_;
  std::size_t capacity_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

// Owned values named by Handle. A handle may outlive its value: find() then returns null. It reserves its
// storage once and touches it only as it fills, as a BoundedQueue does.
//
// Owns    its values; erase ends one.
// Thread  one at a time.
// Bound   the capacity given.
// Fails   insert gives nothing when full; find and erase refuse a handle that is stale, forged or zero.
template<class T>
class SlotMap {
 public:
  // capacity at most 65,536, the slots a Handle can name.
  explicit SlotMap(std::size_t capacity) : capacity_(capacity) {
    MUSTER_ASSERT(capacity > 0 && capacity <= 65536);
    slots_.reserve(capacity);
    free_.reserve(capacity);
  }

  // Nothing when full.
  std::optional<Handle> insert(T value) {
    if (size() == capacity_) return std::nullopt;
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint16_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint16_t slot = free_.back();
    free_.pop_back();
    Slot& s = slots_[slot];
    ++s.generation;
    s.value.emplace(std::move(value));
    return Handle(slot, s.generation);
  }
  // Null for a handle that is stale, forged or zero.
  T* find(Handle handle) {
    if (!handle.valid() || handle.slot() >= slots_.size()) return nullptr;
    Slot& s = slots_[handle.slot()];
    return s.value.has_value() && s.generation == handle.generation() ? &*s.value : nullptr;
  }
  const T* find(Handle handle) const { return const_cast<SlotMap*>(this)->find(handle); }

  // False if there was no such value.
  bool erase(Handle handle) {
    if (find(handle) == nullptr) return false;
    slots_[handle.slot()].value.reset();
    free_.push_back(handle.slot());
    return true;
  }
  std::size_t size() const { return slots_.size() - free_.size(); }
  std::size_t capacity() const { return capacity_; }

  // Calls f(Handle, T&) for each live value in slot order; f must not insert or erase.
  template<class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].value) f(Handle(static_cast<std::uint16_t>(i), slots_[i].generation), *slots_[i].value);
  }
  template<class F>
  void for_each(F&& f) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].value) f(Handle(static_cast<std::uint16_t>(i), slots_[i].generation), *slots_[i].value);
  }

 private:
  struct Slot {
    std::uint64_t generation = 0;
    std::optional<T> value;
  };
  std::size_t capacity_;
  std::vector<Slot> slots_;          // those that were ever used
  std::vector<std::uint16_t> free_;  // of these
};

}  // namespace muster
