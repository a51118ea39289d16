// Bytes: the input of a fuzz target, taken piece by piece. Past its end everything is zero, so that every
// input, however short, is a whole one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace muster::fuzz {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  std::size_t size() const { return left_.size(); }

  template<class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::size_t there = std::min(sizeof value, left_.size());
    if (there > 0) std::memcpy(&value, left_.data(), there);
    left_ = left_.subspan(there);
    return value;
  }
  // 0 … bound - 1, from one byte where that is enough.
  std::uint64_t below(std::uint64_t bound) {
    return (bound <= 256 ? std::uint64_t{take<std::uint8_t>()} : take<std::uint64_t>()) % bound;
  }
  bool flag() { return (take<std::uint8_t>() & 1) != 0; }
  // A number as programs have them: mostly small, now and then at an edge or anything at all.
  std::uint64_t number() {
    const auto how = take<std::uint8_t>();
    if (how < 160) return how % 80;
    if (how < 200) return take<std::uint16_t>();
    if (how < 220) return (std::uint64_t{1} << below(64)) - how % 3;
    if (how < 230) return std::uint64_t{0} - take<std::uint8_t>();
    return take<std::uint64_t>();
  }
  std::span<const std::uint8_t> some(std::size_t bytes) {
    const auto piece = left_.first(std::min(bytes, left_.size()));
    left_ = left_.subspan(piece.size());
    return piece;
  }
  std::span<const std::uint8_t> rest() { return some(left_.size()); }
  std::string text(std::size_t bytes) {
    const auto piece = some(bytes);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  std::string rest_as_text() { return text(left_.size()); }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace muster::fuzz
