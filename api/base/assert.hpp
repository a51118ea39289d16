// MUSTER_ASSERT: a bug of ours, on in every build. Never for bad input, which is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace muster::detail {

[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal error: assertion failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace muster::detail

#define MUSTER_ASSERT(expression)          \
  (static_cast<bool>(expression) ? void(0) \
                                 : ::muster::detail::assertion_failed(#expression, __FILE__, __LINE__))
