#include "tests/kernels/families/twin/optimiser.hpp"

#include <cmath>

namespace muster::kernels::twin {

AdamwVectors adamw(const Adamw& o, const AdamwState& state, AdamwVectors now,
                   const std::vector<double>& grad) {
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i] * state.gradient_multiplier;
    now.m[i] = o.beta1 * now.m[i] + (1.0 - o.beta1) * g;
    now.v[i] = o.beta2 * now.v[i] + (1.0 - o.beta2) * g * g;
    const double m_hat = now.m[i] / (1.0 - std::pow(o.beta1, state.step));
    const double v_hat = now.v[i] / (1.0 - std::pow(o.beta2, state.step));
    now.param[i] -= o.learning_rate * state.rate_multiplier *
                    (m_hat / (std::sqrt(v_hat) + o.epsilon) + o.weight_decay * now.param[i]);
  }
  return now;
}

}  // namespace muster::kernels::twin
