#include "tests/kernels/families/twin/elementwise.hpp"

#include <cmath>
#include <limits>

namespace muster::kernels::twin {

std::vector<double> axpby(double a, const std::vector<double>& x, double b, const std::vector<double>& y) {
  std::vector<double> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = a * x[i] + (b == 0.0 ? 0.0 : b * y[i]);
  return result;
}

// Neumaier's compensated sum: as good as exact at these sizes.
double sum(const std::vector<double>& x) {
  double total = 0.0;
  double lost = 0.0;
  for (const double value : x) {
    const double next = total + value;
    lost += std::abs(total) >= std::abs(value) ? (total - next) + value : (value - next) + total;
    total = next;
  }
  return total + lost;
}

double sum_squares(const std::vector<double>& x) {
  std::vector<double> squares(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) squares[i] = x[i] * x[i];
  return sum(squares);
}

double count_zeros(const std::vector<double>& x) {
  double count = 0.0;
  for (const double value : x)
    if (value == 0.0) count += 1.0;
  return count;
}

std::array<double, 2> clip_coefficient(double square_sum, double max_norm) {
  const double norm = std::sqrt(square_sum);
  if (std::isnan(norm) || std::isinf(norm)) return {std::numeric_limits<double>::quiet_NaN(), norm};
  if (max_norm <= 0.0 || max_norm >= norm + 1e-6) return {1.0, norm};
  return {max_norm / (norm + 1e-6), norm};
}

}  // namespace muster::kernels::twin
