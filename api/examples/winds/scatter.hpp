// Scatter: one rank reads a sample and sends each rank its rows, a chunk at a time.
#pragma once

#include "api/examples/winds/model.hpp"

#include <cstdint>
#include <vector>

namespace winds {

// Owns    a chunk of rows, and the plans that send it.
// Thread  one. All ranks of `domain` make the same calls.
// Bound   kRows rows of a sample.
// Fails   with RuntimeError; the reading rank as the field.
class Scatter {
 public:
  static constexpr std::int64_t kRows = 16;

  // `rows`: how many each rank of the domain has. Buffers have `samples` samples of own rows.
  Scatter(Runtime& runtime, const Axis& domain, const std::vector<std::int64_t>& rows, const Samples& samples,
          const Buffer& inputs, const Buffer& winds, std::int64_t count);
  // Fills sample `index` of the buffers, at all ranks.
  void read(const Sample& sample, std::int64_t index);

 private:
  struct Chunk {
    std::int64_t row = 0, rows = 0;
    std::vector<muster_plan> plans;  // inputs and winds of each sample
  };
  muster_plan plan(const Chunk& chunk, const std::vector<std::int64_t>& shares, const muster_tensor& source,
                   const muster_tensor& target);

  Runtime& runtime_;
  Axis domain_;
  const Samples& samples_;
  Buffer inputs_, winds_;  // of a chunk, at the rank that reads
  std::vector<Chunk> chunks_;
};

}  // namespace winds
