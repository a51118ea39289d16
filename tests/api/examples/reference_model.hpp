// The model of train_lm once more, in double precision and plain loops, for one sequence after the other and
// with nothing cut, fused or saved by design. It shares no code with the example or the kernels, so that
// equal gradients mean something.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace reference {

struct Sizes {
  std::size_t layers = 1;
  std::size_t width = 8;
  std::size_t heads = 2;
  std::size_t hidden = 12;
  std::size_t context = 4;
  std::size_t vocabulary = 256;
};

// Row-major, by the names that train_lm gives its parameters: "embedding", "block0.query", …, "final_norm",
// "head".
using Parameters = std::map<std::string, std::vector<double>>;

struct Pass {
  double loss = 0.0;     // mean over all tokens, in nats
  Parameters gradients;  // of that mean
};

// `ids` and `targets`: sequences x context. Forward and backward.
Pass run(const Sizes& sizes, const Parameters& parameters, std::span<const int> ids,
         std::span<const int> targets);

// The forward pass alone.
double loss_of(const Sizes& sizes, const Parameters& parameters, std::span<const int> ids,
               std::span<const int> targets);

}  // namespace reference
