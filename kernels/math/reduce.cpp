#include "kernels/math/reduce.hpp"

#include "api/base/assert.hpp"
#include "kernels/math/reduce_formats.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/reduce.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {
namespace {

// AVG of i64. Plain code, because no instruction set divides such vectors and no float holds their sums.
void average_i64(const Reduction& r) {
  const auto members = static_cast<std::int64_t>(r.source_count);
  MUSTER_ASSERT(members > 0);
  for (std::size_t i = 0; i < r.count; ++i) {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < r.source_count; ++k) {
      std::uint64_t element;
      std::memcpy(&element, r.sources[k] + i * sizeof element, sizeof element);
      sum += element;
    }
    const std::int64_t mean = static_cast<std::int64_t>(sum) / members;
    std::memcpy(r.target + i * sizeof mean, &mean, sizeof mean);
  }
}

}  // namespace

HWY_EXPORT(target_name);

const char* simd_target() noexcept {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

Reducer reducer_of(muster_dtype dtype, muster_redop redop) {
  MUSTER_ASSERT(redop >= MUSTER_SUM && redop <= MUSTER_PREMUL_SUM);
  switch (dtype) {
    case MUSTER_F32:
    case MUSTER_F64:
      return reducer_real(dtype, redop);
    case MUSTER_BF16:
    case MUSTER_F16:
      return reducer_half(dtype, redop);
    case MUSTER_F8_E4M3:
    case MUSTER_F8_E5M2:
      return reducer_quarter(dtype, redop);
    default:
      MUSTER_ASSERT(dtype == MUSTER_I32 || dtype == MUSTER_I64 || dtype == MUSTER_U8 || dtype == MUSTER_I8);
      return dtype == MUSTER_I64 && redop == MUSTER_AVG ? average_i64 : reducer_integer(dtype, redop);
  }
}

void reduce(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
            std::byte* target, std::size_t count, double scale) {
  MUSTER_ASSERT(!sources.empty() && sources.size() <= kReduceSourcesMax);
  if (count == 0) return;
  reducer_of(dtype, redop)({redop, sources.data(), sources.size(), target, count, scale});
}

}  // namespace muster::math
#endif  // HWY_ONCE
