// The seam between the product's sources and a checker of the memory model. It is included in front of every
// source of the product that is compiled into a model (-include), so that the source itself stays as it is.
//
// It replaces std::atomic_ref, the fences and memcpy. All standard headers that those sources need come
// first, so that the macros below change the product's own text alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <tl/expected.hpp>

namespace muster::model {

// A word of at most 64 bits that several ranks share, as the checker has it; of the own memory, as it is.
std::uint64_t load(const void* word, std::size_t bytes, std::memory_order order) noexcept;
void store(void* word, std::size_t bytes, std::uint64_t value, std::memory_order order) noexcept;
void add(void* word, std::size_t bytes, std::uint64_t value, std::memory_order order) noexcept;
void fence(std::memory_order order) noexcept;
// memcpy, of which the words that are shared go through the checker.
void* copy(void* target, const void* source, std::size_t bytes) noexcept;

}  // namespace muster::model

// The product says std:: in front of these names, so they have to be found there.
namespace std {

template<class T>
class muster_model_ref {
 public:
  static constexpr bool is_always_lock_free = true;
  explicit muster_model_ref(T& word) : word_(&word) {}
  T load(memory_order order) const noexcept {
    return static_cast<T>(muster::model::load(word_, sizeof(T), order));
  }
  void store(T value, memory_order order) const noexcept {
    muster::model::store(word_, sizeof(T), static_cast<uint64_t>(value), order);
  }
  void fetch_add(T value, memory_order order) const noexcept {
    muster::model::add(word_, sizeof(T), static_cast<uint64_t>(value), order);
  }

 private:
  T* word_;
};

inline void* muster_model_copy(void* target, const void* source, size_t bytes) {
  return muster::model::copy(target, source, bytes);
}
// It orders nothing between threads; what it keeps a compiler from is not done to a model.
inline void muster_model_signal_fence(memory_order) {}
inline void muster_model_thread_fence(memory_order order) {
  muster::model::fence(order);
}

}  // namespace std

#define atomic_ref muster_model_ref
#define memcpy muster_model_copy
#define atomic_signal_fence muster_model_signal_fence
#define atomic_thread_fence muster_model_thread_fence
