#include "tests/kernels/families/twin/loss.hpp"

#include <cmath>
#include <limits>

namespace muster::kernels::twin {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double log_sum_exp(const double* x, std::size_t columns) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < columns; ++k) largest = std::fmax(largest, x[k]);
  double sum = 0.0;
  for (std::size_t k = 0; k < columns; ++k) sum += std::exp(x[k] - largest);
  return sum == 0.0 ? largest : largest + std::log(sum);
}

bool is_column(double target, std::size_t columns) {
  return target >= 0.0 && target < static_cast<double>(columns);
}

}  // namespace

CrossEntropy cross_entropy(const std::vector<double>& logits, const std::vector<double>& targets) {
  const std::size_t tokens = targets.size();
  const std::size_t columns = tokens == 0 ? 0 : logits.size() / tokens;
  CrossEntropy result{std::vector<double>(tokens), std::vector<double>(tokens)};
  for (std::size_t t = 0; t < tokens; ++t) {
    const double* x = logits.data() + t * columns;
    result.lse[t] = log_sum_exp(x, columns);
    if (targets[t] == -1.0)
      result.loss[t] = 0.0;
    else
      result.loss[t] =
          is_column(targets[t], columns) ? result.lse[t] - x[static_cast<std::size_t>(targets[t])] : kNan;
  }
  return result;
}

std::vector<double> cross_entropy_backward(const std::vector<double>& logits,
                                           const std::vector<double>& targets, double scale) {
  const std::size_t tokens = targets.size();
  const std::size_t columns = tokens == 0 ? 0 : logits.size() / tokens;
  std::vector<double> gradient(logits.size(), 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    if (targets[t] == -1.0) continue;
    const double* x = logits.data() + t * columns;
    const double lse = log_sum_exp(x, columns);
    for (std::size_t k = 0; k < columns; ++k) {
      const double hot = static_cast<double>(k) == targets[t] ? 1.0 : 0.0;
      gradient[t * columns + k] =
          is_column(targets[t], columns) ? scale * (std::exp(x[k] - lse) - hot) : kNan;
    }
  }
  return gradient;
}

}  // namespace muster::kernels::twin
