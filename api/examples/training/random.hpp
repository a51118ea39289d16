// Random numbers that depend on (seed, stream name, index) alone. There is no state, so any rank can compute
// any of them: every mesh starts from the same weights and reads the same batches.
#pragma once

#include <cstdint>
#include <string_view>

namespace training {

// Owns    a key. Thread  a value; any.
// Bound   one hash a call.  Fails   never.
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::string_view stream);

  std::uint64_t bits(std::uint64_t index) const;
  double uniform(std::uint64_t index) const;  // in [0, 1)
  double normal(std::uint64_t index) const;   // mean 0, deviation 1

 private:
  std::uint64_t key_;
};

}  // namespace training
