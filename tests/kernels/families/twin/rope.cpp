#include "tests/kernels/families/twin/rope.hpp"

#include <cmath>

namespace muster::kernels::twin {

std::vector<double> rope(const std::vector<double>& x, RopeShape shape, std::int64_t position, double theta,
                         int direction) {
  std::vector<double> y(x.size());
  const std::size_t pairs = shape.features / 2;
  for (std::size_t row = 0; row < shape.batch * shape.positions * shape.heads; ++row) {
    const std::size_t s = row / shape.heads % shape.positions;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.features);
      const double angle = direction * static_cast<double>(position + static_cast<std::int64_t>(s)) *
                           std::pow(theta, exponent);
      const std::size_t a = row * shape.features + i;
      const std::size_t b = a + pairs;
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
  }
  return y;
}

}  // namespace muster::kernels::twin
