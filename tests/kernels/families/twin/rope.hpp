// Rotary position embedding in double (Su et al. 2021, in the half-split form).
#pragma once

#include <cstdint>
#include <vector>

namespace muster::kernels::twin {

struct RopeShape {
  std::size_t batch, positions, heads, features;
};

std::vector<double> rope(const std::vector<double>& x, RopeShape shape, std::int64_t position, double theta,
                         int direction);

}  // namespace muster::kernels::twin
