// SameLines: lines of several ranks, held for a moment, so that lines common to all are printed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

// Owns    the lines that were added and not taken.
// Thread  one.
// Bound   its user takes them once it is full().
// Fails   never.
class SameLines {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 10;

  // A whole line of a rank, without its end.
  void add(std::uint32_t rank, std::string_view line);
  // A text that belongs to no rank, with its end.
  void add_own(std::string_view text);
  bool empty() const { return entries_.empty(); }
  bool full() const { return bytes_ >= kBytesMax; }

  // kEach: each line behind its rank. kOnce: lines of several ranks that differ by no more than a "rank N: "
  // at their beginning, N being the rank's own number, become one, behind all these ranks. A rank's lines
  // keep their order.
  enum class Say : std::uint8_t { kEach, kOnce };
  std::string take(Say how);

 private:
  struct Entry {
    std::optional<std::uint32_t> rank;
    std::string text;
  };
  std::vector<Entry> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace muster::cli
