// Group norm of a whole field in long double: [samples, points, channels].
#pragma once

#include <cstdint>
#include <vector>

namespace muster::kernels::twin {

using Values = std::vector<double>;

struct GroupNormSizes {
  std::int64_t samples = 1, points = 1, channels = 1, groups = 1;
};
struct GroupNormGradients {
  Values dx, dweight, dbias;
};

Values group_norm_forward(const GroupNormSizes& s, const Values& x, const Values& weight, const Values& bias,
                          double epsilon);
GroupNormGradients group_norm_backward(const GroupNormSizes& s, const Values& dy, const Values& x,
                                       const Values& weight, double epsilon);

}  // namespace muster::kernels::twin
