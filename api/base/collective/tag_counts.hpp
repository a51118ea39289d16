// TagCounts: a count for each tag. Neighbouring tags with equal counts take one entry, so a program that uses
// every tag once, in order, needs no more memory than one that uses a single tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace muster {

// Owns    the counts. All are 0 at first.
// Thread  one.
// Bound   twice the least number of entries, or kKept. No heap is taken where the same few tags recur.
// Fails   never.
class TagCounts {
 public:
  std::uint64_t of(std::uint32_t tag) const;
  void set(std::uint32_t tag, std::uint64_t count);
  // Returns the new count. decrement(): it must be above 0.
  std::uint64_t increment(std::uint32_t tag);
  std::uint64_t decrement(std::uint32_t tag);
  void clear() { *this = TagCounts(); }
  std::size_t entries() const { return from_.size(); }

 private:
  static constexpr std::size_t kKept = 64;
  void merge();

  std::map<std::uint32_t, std::uint64_t> from_{{0, 0}};  // the count from that tag on, up to the next entry
  std::size_t merge_at_ = kKept;
};

}  // namespace muster
