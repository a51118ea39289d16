#include "tests/kernels/families/twin/activation.hpp"

#include <cmath>
#include <numbers>

namespace muster::kernels::twin {
namespace {

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace

std::vector<double> gelu(const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * normal_cdf(x[i]);
  return y;
}

std::vector<double> gelu_backward(const std::vector<double>& dy, const std::vector<double>& x) {
  std::vector<double> dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double density = std::exp(-0.5 * x[i] * x[i]) / std::sqrt(2.0 * std::numbers::pi);
    dx[i] = dy[i] * (normal_cdf(x[i]) + x[i] * density);
  }
  return dx;
}

std::vector<double> swiglu(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
  return y;
}

SwigluGradients swiglu_backward(const std::vector<double>& dy, const std::vector<double>& gate,
                                const std::vector<double>& up) {
  SwigluGradients g{std::vector<double>(dy.size()), std::vector<double>(dy.size())};
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const double s = sigmoid(gate[i]);
    g.dgate[i] = dy[i] * up[i] * (s + gate[i] * s * (1.0 - s));
    g.dup[i] = dy[i] * gate[i] * s;
  }
  return g;
}

}  // namespace muster::kernels::twin
