#include "kernels/math/copy.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math/copy.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `target` is aligned to a vector. Returns how many bytes were copied: whole groups of four vectors.
std::size_t stream_bytes(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * n <= bytes; i += 4 * n) {
    const auto a = hn::LoadU(d, source + i);
    const auto b = hn::LoadU(d, source + i + n);
    const auto c = hn::LoadU(d, source + i + 2 * n);
    const auto e = hn::LoadU(d, source + i + 3 * n);
    hn::Stream(a, d, target + i);
    hn::Stream(b, d, target + i + n);
    hn::Stream(c, d, target + i + 2 * n);
    hn::Stream(e, d, target + i + 3 * n);
  }
  return i;
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::math {

HWY_EXPORT(stream_bytes);

constexpr std::size_t kLineBytes = 64;  // of the cache; no vector is longer

void stream(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes < 2 * kLineBytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    return;
  }
  const std::size_t head = (kLineBytes - reinterpret_cast<std::uintptr_t>(target) % kLineBytes) % kLineBytes;
  std::memcpy(target, source, head);
  const std::size_t body =
      HWY_DYNAMIC_DISPATCH(stream_bytes)(reinterpret_cast<std::uint8_t*>(target + head),
                                         reinterpret_cast<const std::uint8_t*>(source + head), bytes - head);
  std::memcpy(target + head + body, source + head + body, bytes - head - body);
}

void end_stream() {
  hwy::FlushStream();
}

void copy(std::byte* target, const std::byte* source, std::size_t bytes, std::size_t streaming_from_bytes) {
  if (bytes == 0 || target == source) return;
  if (bytes < streaming_from_bytes || bytes < 2 * kLineBytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  stream(target, source, bytes);
  end_stream();
}

}  // namespace muster::math
#endif  // HWY_ONCE
