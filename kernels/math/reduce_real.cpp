// f32 and f64: elements are lanes.
#include "kernels/math/reduce_formats.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_real.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

Reducer real_loops(muster_dtype dtype, muster_redop redop) {
  return dtype == MUSTER_F32 ? float_reducer<PlainFormat<float>>(redop)
                             : float_reducer<PlainFormat<double>>(redop);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(real_loops);

Reducer reducer_real(muster_dtype dtype, muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(real_loops)(dtype, redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
