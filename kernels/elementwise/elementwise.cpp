#include "kernels/elementwise/elementwise.hpp"

#include "kernels/elementwise/map.hpp"
#include "kernels/elementwise/reduce.hpp"
#include "kernels/on_host.hpp"

#include <muster/kernels.h>

namespace muster::kernels::elementwise {

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 7> kRows{{
      {MUSTER_KERNEL_COPY, "copy", kCopyOperands, 0, 0, check_copy, parts_copy, launchers(on_host<run_copy>),
       0},
      {MUSTER_KERNEL_FILL, "fill", kFillOperands, 0, 1, check_fill, parts_fill, launchers(on_host<run_fill>)},
      {MUSTER_KERNEL_AXPBY, "axpby", kAxpbyOperands, 0, 2, check_axpby, parts_axpby,
       launchers(on_host<run_axpby>), 0},
      {MUSTER_KERNEL_SUM, "sum", kSumOperands, 1, 1, check_sum, parts_reduction,
       launchers(on_host<run_sum, fold_reduction>), -1, true},
      {MUSTER_KERNEL_SUM_SQUARES, "sum_squares", kSumOperands, 1, 1, check_sum_squares, parts_reduction,
       launchers(on_host<run_sum_squares, fold_reduction>), -1, true},
      {MUSTER_KERNEL_CLIP_COEFFICIENT, "clip_coefficient", kClipOperands, 0, 1, check_clip_coefficient,
       one_part, launchers(on_host<run_clip_coefficient>)},
      {MUSTER_KERNEL_COUNT_ZEROS, "count_zeros", kSumOperands, 1, 1, check_count_zeros, parts_reduction,
       launchers(on_host<run_count_zeros, fold_reduction>), -1, true},
  }};
  return kRows;
}

}  // namespace muster::kernels::elementwise
