// The measurements of sharding_rank. All ranks of a job run each one, and rank 0 prints one line of JSON.
#pragma once

#include "tests/bench/sharding/rank.hpp"

#include <cstdint>
#include <string>

namespace muster::bench::sharding {

// How modules become units, after the three wrappings that FSDP2 is used with:
//   root   each block is a unit, and the root has embedding, final norm and output
//   alone  each module is a unit, also the final norm
//   list   embedding, each block, and [final norm, output] together
enum class Wrapping : std::uint8_t { kRoot, kAlone, kList };

struct WrappingOptions {
  Wrapping wrapping = Wrapping::kList;
  std::int64_t width = 512;
  std::int64_t vocabulary = 4000;
  std::int64_t hidden = 1792;
  std::int64_t key_width = 128;  // of keys and of values, which several heads share
  std::int64_t blocks = 4;
  std::int64_t tokens = 16;  // of each rank
  int steps = 10;
};
// Bytes that are whole, gathers, and the time of a step without an optimiser.
void measure_wrapping(Rank& rank, const WrappingOptions& options);

struct OverheadOptions {
  int units = 64;
  int steps = 200;
};
// The time of a step of units that have next to nothing, and of the same collectives without units.
void measure_overhead(Rank& rank, const OverheadOptions& options);

struct CheckpointOptions {
  std::string folder;
  std::uint64_t mib = 512;  // of all ranks together
  int turns = 3;
};
// The time to save and to load. The folder must be empty, or not there; it is removed.
void measure_checkpoint(Rank& rank, const CheckpointOptions& options);

}  // namespace muster::bench::sharding
