// Time that moves only when a test says so.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/clock.hpp"

namespace muster::test {

// Owns    its instant.
// Thread  one at a time.
// Bound   never goes back: asserts on a negative advance.
// Fails   never.
class ManualClock final : public Clock {
 public:
  Instant now() const noexcept override { return now_; }
  void advance(Nanos by) noexcept {
    MUSTER_ASSERT(by >= Nanos{0});
    now_ += by;
  }

 private:
  Instant now_{0};
};

}  // namespace muster::test
