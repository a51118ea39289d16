// f32 and f64: elements are lanes.
#include "kernels/math/reduce_formats.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_real.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_float_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

Reducer floats32(muster_redop redop) {
  return float_reducer<PlainFormat<float>>(redop);
}
Reducer floats64(muster_redop redop) {
  return float_reducer<PlainFormat<double>>(redop);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(floats32);
HWY_EXPORT(floats64);

Reducer reducer_f32(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(floats32)(redop);
}
Reducer reducer_f64(muster_redop redop) {
  return HWY_DYNAMIC_DISPATCH(floats64)(redop);
}

}  // namespace muster::math
#endif  // HWY_ONCE
