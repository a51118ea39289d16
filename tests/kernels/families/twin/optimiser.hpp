// AdamW in double, as its authors write it (Loshchilov & Hutter 2019, algorithm 2, decoupled weight decay).
#pragma once

#include <vector>

namespace muster::kernels::twin {

struct Adamw {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
};
struct AdamwState {
  double rate_multiplier, step, gradient_multiplier;
};
struct AdamwVectors {
  std::vector<double> param, m, v;
};

AdamwVectors adamw(const Adamw& options, const AdamwState& state, AdamwVectors before,
                   const std::vector<double>& grad);

}  // namespace muster::kernels::twin
