#include "api/examples/training/optimiser.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace training {
namespace {

constexpr double kFinalMultiplier = 0.1;

}  // namespace

double learning_rate_multiplier(std::int64_t step, std::int64_t steps, std::int64_t warmup) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double total = static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
  const double progress = static_cast<double>(step - warmup) / total;
  return kFinalMultiplier + (1.0 - kFinalMultiplier) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

Optimiser::Optimiser(Runtime& runtime, Units& units)
    : units_(units),
      state_(runtime.allocate(4 * sizeof(float))),
      square_sum_(runtime.allocate(sizeof(double))),
      program_(runtime) {}

void Optimiser::record(double learning_rate, double clip) {
  program_.kernel(muster_clip_coefficient(square_sum(), floats(2, 2), clip));
  units_.update(program_, floats(0, 3), learning_rate);
}

muster_point Optimiser::update(muster_point after) {
  return program_.replay(std::array{units_.square_sum(square_sum()), after});
}

}  // namespace training
