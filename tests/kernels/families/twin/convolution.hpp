// Plain convolutions of a whole field in double, which know nothing of boxes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace muster::kernels::twin {

using Values = std::vector<double>;

struct ConvolutionSizes {
  std::int64_t samples = 1, channels = 1, outputs = 1, groups = 1;
  std::vector<std::int64_t> items, kernel, stride, dilation, before, after;  // by spatial dim

  std::size_t dims() const { return items.size(); }
  std::vector<std::int64_t> results() const;
};

// x [samples, items..., channels], w [outputs, kernel..., channels/groups], bias [outputs] or empty, y and dy
// [samples, results..., outputs].
Values convolution_forward(const ConvolutionSizes& s, const Values& x, const Values& w, const Values& bias);
Values convolution_dgrad(const ConvolutionSizes& s, const Values& dy, const Values& w);
Values convolution_wgrad(const ConvolutionSizes& s, const Values& dy, const Values& x);
Values convolution_dbias(const ConvolutionSizes& s, const Values& dy);

}  // namespace muster::kernels::twin
