// Replaces operator new and delete for the whole program. They are not inlined: next to a caller the pair
// looks mismatched to the compiler.
#include "tests/transport/counted_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> g_allocations{0};

void* counted(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::uint64_t muster::transport::test::allocations() noexcept {
  return g_allocations.load();
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
