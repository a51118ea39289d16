// f32 and f64: elements are lanes.
#include "kernels/math/reduce_formats.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce_real.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/math/reduce_float_ops.hpp"

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

void floats32(const Reduction& r) {
  reduce_floats<PlainFormat<float>>(r);
}
void floats64(const Reduction& r) {
  reduce_floats<PlainFormat<double>>(r);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(floats32);
HWY_EXPORT(floats64);

void reduce_f32(const Reduction& reduction) {
  HWY_DYNAMIC_DISPATCH(floats32)(reduction);
}
void reduce_f64(const Reduction& reduction) {
  HWY_DYNAMIC_DISPATCH(floats64)(reduction);
}

}  // namespace muster::math
#endif  // HWY_ONCE
