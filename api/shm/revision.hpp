// A sequence lock over words with one writer: readers take several words as one consistent value and never
// block the writer. Its words are written with store_release and read with load_acquire. So a reader that
// sees a new word also sees the odd revision before it, without a fence.
#pragma once

#include "api/shm/untrusted.hpp"

#include <cstdint>

namespace muster::shm {

// Owns    the count of changes; not the word.
// Thread  one at a time, the writer's.
// Bound   two stores a change.
// Fails   never.
template<class Policy = StdAtomics>
class RevisionWriter {
 public:
  using Word = typename Policy::template Word<std::uint64_t>;

  void begin(Word* word) { Published<std::uint64_t, Policy>(word).store(++count_); }
  void end(Word* word) { Published<std::uint64_t, Policy>(word).store_release(++count_); }

 private:
  std::uint64_t count_ = 0;
};

// One attempt to read: construct, read the words if stable(), and use them if unchanged().
//
// Owns    nothing.
// Thread  the reader's.
// Bound   one load each; the caller bounds its attempts.
// Fails   an attempt during a change is not stable.
template<class Policy = StdAtomics>
class RevisionReader {
 public:
  using Word = typename Policy::template Word<std::uint64_t>;

  explicit RevisionReader(const Word* word) : word_(word), before_(word_.load_acquire()) {}

  [[nodiscard]] bool stable() const { return before_ % 2 == 0; }
  [[nodiscard]] bool unchanged() const { return word_.load() == before_; }

 private:
  Untrusted<std::uint64_t, Policy> word_;
  std::uint64_t before_;
};

}  // namespace muster::shm
