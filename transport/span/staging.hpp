// Staging: memory through which bytes between nodes pass.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace muster::transport::span {

// Memory that goes back to its Staging.
class Staging;
struct Staged {
  std::unique_ptr<std::byte[]> memory;
  std::size_t bytes = 0;  // at least what was asked for
  std::byte* data() const { return memory.get(); }
};

// Owns    what was given back, for the next.
// Thread  one.
// Bound   kKeptBytes of what nobody uses. What is in use is bounded by the operations in flight.
// Fails   never.
class Staging {
 public:
  static constexpr std::size_t kKeptBytes = 64 << 20;

  Staged take(std::size_t bytes);
  void give_back(Staged staged);

 private:
  std::vector<Staged> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace muster::transport::span
