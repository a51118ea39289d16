// Where units lie while they are whole. Their places are fixed before the first step, so that plans of
// kernels stay valid, and memory for the places is all that a budget allows.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::shard {

struct Arrangement {
  struct Unit {
    std::string name;
    std::uint64_t bytes = 0;  // 0: it needs no place
    std::size_t module = 0;   // units of one module are whole together; numbers rise with the order of use
    bool apart = false;       // it is whole while all others come and go, so it shares its place with none
  };

  std::vector<std::uint64_t> offsets;  // by unit: multiples of 64
  std::uint64_t bytes = 0;             // of all places
  std::uint64_t least = 0;             // the smallest budget for these units
  std::size_t depth = 0;               // modules that are this far apart or nearer share no memory
};

// Units are used in their order, and then in reverse. Modules that are at most `depth` apart get places
// apart, so that a unit can be gathered while the one `depth` before it is in use. If the budget has no room
// for that, the depth is less. budget: bytes; 0: none. Errors: kNoResource, a budget below the least.
Result<Arrangement> arrange(std::span<const Arrangement::Unit> units, std::size_t depth,
                            std::uint64_t budget);

// Whether two places share a byte.
bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes);

}  // namespace muster::shard
