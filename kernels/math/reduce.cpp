#include "kernels/math/reduce.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "kernels/math/reduce_formats.hpp"

#include <algorithm>
#include <array>
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

// AVG of integers: no instruction set divides integer vectors, so this is plain code, a tile at a time.
template<class T>
void average(const Reduction& r) {
  constexpr std::size_t kTile = 512;
  std::array<std::uint64_t, kTile> sum;
  const auto members = static_cast<std::int64_t>(r.source_count);
  for (std::size_t first = 0; first < r.count; first += kTile) {
    const std::size_t count = std::min(kTile, r.count - first);
    sum.fill(0);
    for (std::size_t k = 0; k < r.source_count; ++k) {
      const std::byte* source = r.sources[k] + first * sizeof(T);
      for (std::size_t i = 0; i < count; ++i) {
        T element;
        std::memcpy(&element, source + i * sizeof(T), sizeof(T));
        sum[i] += static_cast<std::uint64_t>(static_cast<std::int64_t>(element));
      }
    }
    std::byte* target = r.target + first * sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      const T mean = static_cast<T>(static_cast<std::int64_t>(sum[i]) / members);
      std::memcpy(target + i * sizeof(T), &mean, sizeof(T));
    }
  }
}

}  // namespace

HWY_EXPORT(target_name);

const char* simd_target() noexcept {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

void reduce(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
            std::byte* target, std::size_t count, double scale) {
  MUSTER_ASSERT(!sources.empty() && sources.size() <= kReduceSourcesMax);
  MUSTER_ASSERT(redop >= MUSTER_SUM && redop <= MUSTER_PREMUL_SUM);
  if (count == 0) return;
  const Reduction reduction{redop, sources.data(), sources.size(), target, count, scale};
  const bool mean = redop == MUSTER_AVG;
  switch (dtype) {
    case MUSTER_F32:
      return reduce_f32(reduction);
    case MUSTER_BF16:
      return reduce_bf16(reduction);
    case MUSTER_F16:
      return reduce_f16(reduction);
    case MUSTER_F64:
      return reduce_f64(reduction);
    case MUSTER_I32:
      return mean ? average<std::int32_t>(reduction) : reduce_i32(reduction);
    case MUSTER_I64:
      return mean ? average<std::int64_t>(reduction) : reduce_i64(reduction);
    case MUSTER_U8:
      return mean ? average<std::uint8_t>(reduction) : reduce_u8(reduction);
    default:
      MUSTER_ASSERT(dtype_bytes(dtype) != 0);
  }
}

}  // namespace muster::math
#endif  // HWY_ONCE
