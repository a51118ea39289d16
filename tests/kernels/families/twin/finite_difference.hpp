// The gradient of a scalar function by central differences, to check a twin's backward against its own
// forward.
#pragma once

#include <functional>
#include <vector>

namespace muster::kernels::twin {

// The error is of the order of step² (third derivative) and 1e-16/step (rounding): about 1e-10 for smooth
// functions of order 1.
inline std::vector<double> finite_difference(const std::function<double(const std::vector<double>&)>& f,
                                             std::vector<double> x, double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

// Σ a·b: turns a forward of many outputs into a scalar, whose gradient is the backward of `b`.
inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace muster::kernels::twin
