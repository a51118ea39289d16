// MUSTER_PROMISE: what a fuzz target holds the code to. A broken promise ends the program as a crash does, so
// that the fuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace muster::fuzz {

[[noreturn]] inline void promise_broken(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: promise broken: %s\n", file, line, what);
  std::abort();
}

}  // namespace muster::fuzz

#define MUSTER_PROMISE(expression) \
  (static_cast<bool>(expression) ? void(0) : ::muster::fuzz::promise_broken(#expression, __FILE__, __LINE__))
