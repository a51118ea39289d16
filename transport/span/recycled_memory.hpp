// RecycledMemory: memory of what comes and goes with each operation and message, kept for the next ones.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory_resource>

namespace muster::transport::span {

// A piece has the size of its class, a power of two, so one that was given back fits the next of its class. A
// sanitizer gets each piece from the heap, to see who uses one that was given back.
//
// Owns    the pieces that were given back.
// Thread  one.
// Bound   what was in use at once. Pieces above kKeptMax go back to the heap.
// Fails   as the heap does.
class RecycledMemory final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t kLeast = 64;
  static constexpr std::size_t kKeptMax = std::size_t{1} << 15;

  RecycledMemory() = default;
  ~RecycledMemory() override {
    for (std::size_t each = 0; each < kept_.size(); ++each)
      while (Piece* const piece = take(each)) heap().deallocate(piece, kLeast << each);
  }
  RecycledMemory(const RecycledMemory&) = delete;
  RecycledMemory& operator=(const RecycledMemory&) = delete;

 private:
  struct Piece {
    Piece* next = nullptr;
  };
  static constexpr std::size_t kClasses = std::bit_width(kKeptMax / kLeast);
  static constexpr std::size_t class_of(std::size_t bytes) {
    return bytes <= kLeast ? 0 : static_cast<std::size_t>(std::bit_width((bytes - 1) / kLeast));
  }
  static std::pmr::memory_resource& heap() { return *std::pmr::new_delete_resource(); }
#if defined(MUSTER_SANITIZED)
  static constexpr bool kKeeps = false;
#else
  static constexpr bool kKeeps = true;
#endif
  static constexpr bool is_kept(std::size_t bytes, std::size_t alignment) {
    return kKeeps && bytes <= kKeptMax && alignment <= alignof(std::max_align_t);
  }
  Piece* take(std::size_t size_class) {
    Piece* const piece = kept_[size_class];
    if (piece != nullptr) kept_[size_class] = piece->next;
    return piece;
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (!is_kept(bytes, alignment)) return heap().allocate(bytes, alignment);
    Piece* const piece = take(class_of(bytes));
    return piece != nullptr ? piece : heap().allocate(kLeast << class_of(bytes));
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    if (!is_kept(bytes, alignment)) return heap().deallocate(memory, bytes, alignment);
    Piece*& first = kept_[class_of(bytes)];
    first = new (memory) Piece{first};
  }
  bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::array<Piece*, kClasses> kept_{};  // by class
};

}  // namespace muster::transport::span
