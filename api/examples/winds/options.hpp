// The command line of winds, checked. Nothing here calls the runtime.
#pragma once

#include "api/examples/training/errors.hpp"
#include "api/examples/training/parameter.hpp"
#include "api/examples/winds/part.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace winds {

// By default a step has a sample for each group of `domain`, and as many as this at least. With one sample
// the gradient is so noisy that some seeds end with a wind that is worse than climatology.
inline constexpr std::int64_t kBatchMin = 2;

struct Options {
  std::string field = {};  // empty: vortices
  std::int64_t month = 0;  // that is learned; the next one judges
  std::int64_t steps = 300;
  std::uint64_t seed = 1;
  std::int64_t batch = 0;            // samples of a step, of all ranks together; 0: as kBatchMin says
  std::int64_t width = 16;           // channels of the finest level
  std::optional<RankGrid> cut = {};  // of the field over `domain`; nothing: by rows
  double learning_rate = 2e-3;
  std::int64_t warmup = 20;
  double clip = 1.0;  // 0: gradients are not clipped
  std::uint32_t prefetch = 1;
  bool recompute = false;  // forward again in the backward, in place of kept activations
  bool scatter = false;    // the first rank reads for all of its group
  bool verify = false;
  bool json = false;
  std::string trace = {};
  std::string html = {};
  std::optional<std::uint64_t> delay_ranks = {};
  std::string save = {};
  std::int64_t save_every = 0;
  std::uint32_t keep = 2;
  std::string resume = {};
};

// nullopt after --help has been printed. Throws UsageError.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace winds
