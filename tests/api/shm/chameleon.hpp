// Memory that answers each read with something else: an atomics policy for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>

namespace muster::shm {

// Counts the loads of each word, and lets a test choose what the n-th load of a word sees. Code that fetches
// a word twice and trusts both is caught twice: by the count, and because the second answer differs from the
// first.
struct ChameleonAtomics {
  template<class T>
  using Word = T;

  // Chooses the value that a load sees. Gets the stored value, the number of this load of the word (from 1),
  // and the word's address.
  static inline std::function<std::uint64_t(std::uint64_t stored, int nth, const void* word)> answer;
  static inline std::map<const void*, int> loads;

  static void reset() {
    loads.clear();
    answer = nullptr;
  }

  template<class T>
  static T load(const T* word, std::memory_order) {
    const int nth = ++loads[word];
    return answer ? static_cast<T>(answer(static_cast<std::uint64_t>(*word), nth, word)) : *word;
  }
  template<class T>
  static void store(T* word, T value, std::memory_order) {
    *word = value;
  }
  template<class T>
  static void add(T* word, T value, std::memory_order) {
    *word = static_cast<T>(*word + value);
  }
};

}  // namespace muster::shm
