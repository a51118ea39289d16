// The other sleep handshake: a client sleeps on the wake word of its completion page, the engine wakes it.
//
//   client:  client_asleep = 1, remember wake, test once more, FUTEX_WAIT(wake, remembered)
//   engine:  write the outcome, wake += 1, is the client asleep? then FUTEX_WAKE
//
// All four accesses are sequentially consistent, so the engine sees the flag or the client's test sees the
// outcome. A wake between the client's test and its wait changes the word, so the wait returns at once.
#pragma once

#include "api/shm/untrusted.hpp"

#include <cstdint>

namespace muster::shm {

// Owns    nothing.
// Thread  one, the client's.
// Bound   one store and one load.
// Fails   never.
template<class Policy = StdAtomics>
class Sleeper {
 public:
  using Word = typename Policy::template Word<std::uint32_t>;
  struct Words {
    const Word* wake;
    Word* client_asleep;
  };
  explicit Sleeper(Words words) : words_(words) {}

  // The value to wait on. Test what you wait for after this call and before the wait.
  [[nodiscard]] std::uint32_t begin() {
    Published<std::uint32_t, Policy>(words_.client_asleep).store_ordered(1);
    return Untrusted<std::uint32_t, Policy>(words_.wake).load_ordered();
  }
  // An engine that still sees the flag makes one needless system call.
  void end() { Published<std::uint32_t, Policy>(words_.client_asleep).store(0); }

 private:
  Words words_;
};

// Owns    nothing.
// Thread  any of the engine's.
// Bound   one addition and one load.
// Fails   never; a false flag of the client costs the engine a system call, or delays that client's wake.
template<class Policy = StdAtomics>
class Waker {
 public:
  using Word = typename Policy::template Word<std::uint32_t>;
  struct Words {
    Word* wake;
    const Word* client_asleep;
  };
  explicit Waker(Words words) : words_(words) {}

  // Call after the outcome is written. True: a FUTEX_WAKE is due.
  [[nodiscard]] bool raise() {
    Published<std::uint32_t, Policy>(words_.wake).add_ordered(1);
    return Untrusted<std::uint32_t, Policy>(words_.client_asleep).load_ordered() != 0;
  }

 private:
  Words words_;
};

}  // namespace muster::shm
