#include "api/client/session/forks.hpp"

#include <cstring>

#include <pthread.h>

namespace muster::client {

Status count_forks() {
  static const int error =
      pthread_atfork(nullptr, nullptr, [] { forks_counted.fetch_add(1, std::memory_order_relaxed); });
  if (error == 0) return {};
  return failure(Code::kNoResource, "pthread_atfork: {}", std::strerror(error));
}

}  // namespace muster::client
