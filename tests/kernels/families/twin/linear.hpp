// The linear layer as plain triple loops in double. Row-major; weight [out, in].
#pragma once

#include <cstddef>
#include <vector>

namespace muster::kernels::twin {

struct LinearSizes {
  std::size_t tokens, out, in;
};

// An empty bias is no bias.
std::vector<double> linear_forward(const LinearSizes& sizes, const std::vector<double>& x,
                                   const std::vector<double>& w, const std::vector<double>& bias);
std::vector<double> linear_dgrad(const LinearSizes& sizes, const std::vector<double>& dy,
                                 const std::vector<double>& w);
std::vector<double> linear_wgrad(const LinearSizes& sizes, const std::vector<double>& dy,
                                 const std::vector<double>& x);
std::vector<double> linear_dbias(const LinearSizes& sizes, const std::vector<double>& dy);

}  // namespace muster::kernels::twin
