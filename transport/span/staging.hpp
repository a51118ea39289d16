// Staging: memory through which bytes between nodes pass.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace muster::transport::span {

// Owns    the memory that was given back, for the next use.
// Thread  one.
// Bound   kKeptBytes of unused memory. The operations in flight bound the memory in use.
// Fails   never.
class Staging {
 public:
  static constexpr std::size_t kKeptBytes = 64 << 20;

  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;  // at least as many as were asked for
    std::byte* data() const { return memory.get(); }
  };
  Piece take(std::size_t bytes);
  void give_back(Piece piece);

 private:
  std::vector<Piece> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace muster::transport::span
