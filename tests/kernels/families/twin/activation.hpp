// Activations in double, element by element.
#pragma once

#include <vector>

namespace muster::kernels::twin {

std::vector<double> gelu(const std::vector<double>& x);
std::vector<double> gelu_backward(const std::vector<double>& dy, const std::vector<double>& x);

std::vector<double> swiglu(const std::vector<double>& gate, const std::vector<double>& up);
struct SwigluGradients {
  std::vector<double> dgate, dup;
};
SwigluGradients swiglu_backward(const std::vector<double>& dy, const std::vector<double>& gate,
                                const std::vector<double>& up);

}  // namespace muster::kernels::twin
