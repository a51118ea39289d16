#include "api/client/forks.hpp"

#include <atomic>
#include <cstring>

#include <pthread.h>

namespace muster::client {
namespace {

std::atomic<std::uint32_t> g_forks{0};

}  // namespace

Status count_forks() {
  static const int error =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  if (error == 0) return {};
  return failure(Code::kNoResource, "pthread_atfork: {}", std::strerror(error));
}

std::uint32_t forks() noexcept {
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace muster::client
