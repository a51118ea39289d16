// Chameleon memory: an atomics policy under which every load of a shared word is answered anew by the fuzzer.
// Code that looks twice at a word and trusts both looks is given two answers.
#pragma once

#include "tests/fuzz/bytes.hpp"

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace muster::fuzz {

struct Chameleon {
  template<class T>
  using Word = T;

  // Where the answers come from; without it, memory says what was stored.
  static inline Bytes* answers = nullptr;
  static inline std::uint64_t loads = 0;
  static inline std::uint64_t stores = 0;

  template<class T>
  static T load(const T* word, std::memory_order) {
    ++loads;
    const T stored = *word;
    if (answers == nullptr) return stored;
    const auto how = answers->take<std::uint8_t>();
    if (how < 192) return stored;
    if (how < 240) return static_cast<T>(static_cast<std::uint64_t>(stored) + how - 216);
    return answers->take<T>();
  }
  template<class T>
  static void store(T* word, T value, std::memory_order) {
    ++stores;
    *word = value;
  }
  template<class T>
  static void add(T* word, T value, std::memory_order) {
    ++stores;
    *word = static_cast<T>(*word + value);
  }
};

}  // namespace muster::fuzz
