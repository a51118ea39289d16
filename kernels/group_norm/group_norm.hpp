// Group norm of a field that is cut over ranks: each rank's statistics, their merger, and the passes that use
// them.
#pragma once

#include <span>

#include "kernels/kernel.hpp"

namespace muster::kernels::group_norm {

// Rows in order of op. Statistics have a part for each sample and group, or for each group; the passes have
// rows of points. Each is computed by one thread in one order, so its bits do not depend on how many workers
// there are.
std::span<const Kernel> rows();

}  // namespace muster::kernels::group_norm
