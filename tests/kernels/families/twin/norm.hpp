// Root mean square norm and layer norm of rows [tokens, features] in double, by their definitions.
#pragma once

#include <cstddef>
#include <vector>

namespace muster::kernels::twin {

struct NormForward {
  std::vector<double> y, mean, rstd;  // mean is empty for the root mean square
};
struct NormBackward {
  std::vector<double> dx, dweight, dbias;
};

NormForward rms_norm(const std::vector<double>& x, const std::vector<double>& weight, std::size_t tokens,
                     double epsilon);
// An empty bias is none.
NormForward layer_norm(const std::vector<double>& x, const std::vector<double>& weight,
                       const std::vector<double>& bias, std::size_t tokens, double epsilon);

// Through the whole chain y ← rstd ← x, one row at a time.
NormBackward rms_norm_backward(const std::vector<double>& dy, const std::vector<double>& x,
                               const std::vector<double>& weight, std::size_t tokens, double epsilon);
NormBackward layer_norm_backward(const std::vector<double>& dy, const std::vector<double>& x,
                                 const std::vector<double>& weight, std::size_t tokens, double epsilon);

}  // namespace muster::kernels::twin
