#include "tests/kernels/families/twin/norm.hpp"

#include <cmath>

namespace muster::kernels::twin {
namespace {

double mean_of_row(const std::vector<double>& x, std::size_t row, std::size_t features) {
  double sum = 0.0;
  for (std::size_t k = 0; k < features; ++k) sum += x[row * features + k];
  return features > 0 ? sum / static_cast<double>(features) : 0.0;
}

double mean_square_around(const std::vector<double>& x, std::size_t row, std::size_t features,
                          double centre) {
  double sum = 0.0;
  for (std::size_t k = 0; k < features; ++k)
    sum += (x[row * features + k] - centre) * (x[row * features + k] - centre);
  return features > 0 ? sum / static_cast<double>(features) : 0.0;
}

// Jacobian by the product rule: y_k = c_k·r·w_k with c = x - centre and r = (mean c² + epsilon)^(-1/2), so
// dr/dx_j = -r³·c_j/n (the part through the centre cancels, as the c add up to zero), and the centre takes
// its mean share from each.
NormBackward backward(const std::vector<double>& dy, const std::vector<double>& x,
                      const std::vector<double>& weight, std::size_t tokens, double epsilon, bool centred) {
  const std::size_t features = weight.size();
  NormBackward g{std::vector<double>(x.size()), std::vector<double>(features), std::vector<double>(features)};
  for (std::size_t t = 0; t < tokens; ++t) {
    const double centre = centred ? mean_of_row(x, t, features) : 0.0;
    const double r = 1.0 / std::sqrt(mean_square_around(x, t, features, centre) + epsilon);
    double dr = 0.0;
    double dcentre = 0.0;
    for (std::size_t k = 0; k < features; ++k) {
      const double c = x[t * features + k] - centre;
      const double d = dy[t * features + k];
      dr += d * c * weight[k];
      dcentre -= d * r * weight[k];
      g.dweight[k] += d * c * r;
      g.dbias[k] += d;
    }
    const double n = static_cast<double>(features);
    for (std::size_t k = 0; k < features; ++k) {
      const double c = x[t * features + k] - centre;
      g.dx[t * features + k] = dy[t * features + k] * r * weight[k] - dr * r * r * r * c / n;
      if (centred) g.dx[t * features + k] += dcentre / n;
    }
  }
  return g;
}

}  // namespace

NormForward rms_norm(const std::vector<double>& x, const std::vector<double>& weight, std::size_t tokens,
                     double epsilon) {
  const std::size_t features = weight.size();
  NormForward f{std::vector<double>(x.size()), {}, std::vector<double>(tokens)};
  for (std::size_t t = 0; t < tokens; ++t) {
    f.rstd[t] = 1.0 / std::sqrt(mean_square_around(x, t, features, 0.0) + epsilon);
    for (std::size_t k = 0; k < features; ++k)
      f.y[t * features + k] = x[t * features + k] * f.rstd[t] * weight[k];
  }
  return f;
}

NormForward layer_norm(const std::vector<double>& x, const std::vector<double>& weight,
                       const std::vector<double>& bias, std::size_t tokens, double epsilon) {
  const std::size_t features = weight.size();
  NormForward f{std::vector<double>(x.size()), std::vector<double>(tokens), std::vector<double>(tokens)};
  for (std::size_t t = 0; t < tokens; ++t) {
    f.mean[t] = mean_of_row(x, t, features);
    f.rstd[t] = 1.0 / std::sqrt(mean_square_around(x, t, features, f.mean[t]) + epsilon);
    for (std::size_t k = 0; k < features; ++k)
      f.y[t * features + k] =
          (x[t * features + k] - f.mean[t]) * f.rstd[t] * weight[k] + (bias.empty() ? 0.0 : bias[k]);
  }
  return f;
}

NormBackward rms_norm_backward(const std::vector<double>& dy, const std::vector<double>& x,
                               const std::vector<double>& weight, std::size_t tokens, double epsilon) {
  return backward(dy, x, weight, tokens, epsilon, false);
}

NormBackward layer_norm_backward(const std::vector<double>& dy, const std::vector<double>& x,
                                 const std::vector<double>& weight, std::size_t tokens, double epsilon) {
  return backward(dy, x, weight, tokens, epsilon, true);
}

}  // namespace muster::kernels::twin
