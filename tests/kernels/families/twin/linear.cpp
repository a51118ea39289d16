#include "tests/kernels/families/twin/linear.hpp"

namespace muster::kernels::twin {

std::vector<double> linear_forward(const LinearSizes& sizes, const std::vector<double>& x,
                                   const std::vector<double>& w, const std::vector<double>& bias) {
  std::vector<double> y(sizes.tokens * sizes.out);
  for (std::size_t t = 0; t < sizes.tokens; ++t) {
    for (std::size_t n = 0; n < sizes.out; ++n) {
      double sum = bias.empty() ? 0.0 : bias[n];
      for (std::size_t k = 0; k < sizes.in; ++k) sum += x[t * sizes.in + k] * w[n * sizes.in + k];
      y[t * sizes.out + n] = sum;
    }
  }
  return y;
}

std::vector<double> linear_dgrad(const LinearSizes& sizes, const std::vector<double>& dy,
                                 const std::vector<double>& w) {
  std::vector<double> dx(sizes.tokens * sizes.in);
  for (std::size_t t = 0; t < sizes.tokens; ++t)
    for (std::size_t n = 0; n < sizes.out; ++n)
      for (std::size_t k = 0; k < sizes.in; ++k)
        dx[t * sizes.in + k] += dy[t * sizes.out + n] * w[n * sizes.in + k];
  return dx;
}

std::vector<double> linear_wgrad(const LinearSizes& sizes, const std::vector<double>& dy,
                                 const std::vector<double>& x) {
  std::vector<double> dw(sizes.out * sizes.in);
  for (std::size_t t = 0; t < sizes.tokens; ++t)
    for (std::size_t n = 0; n < sizes.out; ++n)
      for (std::size_t k = 0; k < sizes.in; ++k)
        dw[n * sizes.in + k] += dy[t * sizes.out + n] * x[t * sizes.in + k];
  return dw;
}

std::vector<double> linear_dbias(const LinearSizes& sizes, const std::vector<double>& dy) {
  std::vector<double> dbias(sizes.out);
  for (std::size_t t = 0; t < sizes.tokens; ++t)
    for (std::size_t n = 0; n < sizes.out; ++n) dbias[n] += dy[t * sizes.out + n];
  return dbias;
}

}  // namespace muster::kernels::twin
