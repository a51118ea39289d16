// Text: the bytes to learn, and which of them each step reads.
#pragma once

#include "api/examples/train_lm/options.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace train_lm {

// Owns    the bytes.
// Thread  immutable; any.
// Bound   the file, in memory; 1 GiB.
// Fails   load() with UsageError: no such file, no regular file, too large, empty, or shorter than one
//         sequence and its next byte.
class Text {
 public:
  // `path` empty: the licence texts that every Debian system has, in a fixed order.
  static Text load(const std::string& path, std::int64_t context);
  Text(std::string bytes, std::int64_t context) : bytes_(std::move(bytes)), context_(context) {}

  // Sequence `row` of the global batch of `step`, of context + 1 bytes: targets are the inputs one byte
  // further. It depends on the seed, the step and the row, but not on the mesh.
  std::span<const char> sequence(std::uint64_t seed, std::int64_t step, std::int64_t batch,
                                 std::int64_t row) const;

  // The first bytes, which sampling continues.
  std::span<const char> prompt() const { return std::span(bytes_).first(static_cast<std::size_t>(context_)); }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t hash() const;  // of all bytes; takes a second per GiB

 private:
  std::string bytes_;
  std::int64_t context_;
};

}  // namespace train_lm
