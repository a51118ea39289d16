// How the loops of reduce() reach memory, compiled once per SIMD target: whole vectors, and the first lanes
// of one. See reduce_loops.hpp.
//
// All access is by bytes, because an element's address need not be a multiple of its size. No byte outside an
// incomplete vector is read or written, because it may belong to another thread, or not be mapped.
#if defined(MUSTER_KERNELS_MATH_REDUCE_MEMORY_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_MATH_REDUCE_MEMORY_HPP
#undef MUSTER_KERNELS_MATH_REDUCE_MEMORY_HPP
#else
#define MUSTER_KERNELS_MATH_REDUCE_MEMORY_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template<class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* from) {
  hn::TFromD<D> lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::Set(d, lane);
}
template<class D>
HWY_INLINE void store_bytes(D, hn::Vec<D> v, std::byte* to) {
  const hn::TFromD<D> lane = hn::GetLane(v);
  std::memcpy(to, &lane, sizeof(lane));
}

// A vector of one lane is never incomplete.
template<class D>
HWY_INLINE hn::Vec<D> load_some(D d, const std::byte* from, std::size_t) {
  return load_bytes(d, from);
}
template<class D>
HWY_INLINE void store_some(D d, hn::Vec<D> v, std::byte* to, std::size_t) {
  store_bytes(d, v, to);
}

#else

template<class D>
using BytesOf = hn::Repartition<std::uint8_t, D>;

template<class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* from) {
  return hn::BitCast(d, hn::LoadU(BytesOf<D>(), reinterpret_cast<const std::uint8_t*>(from)));
}
template<class D>
HWY_INLINE void store_bytes(D, hn::Vec<D> v, std::byte* to) {
  const BytesOf<D> d8;
  hn::StoreU(hn::BitCast(d8, v), d8, reinterpret_cast<std::uint8_t*>(to));
}

template<class Word>
HWY_INLINE std::uint64_t load_word(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
template<class Word>
HWY_INLINE void store_word(std::uint64_t value, std::byte* to) {
  const Word word = static_cast<Word>(value);
  std::memcpy(to, &word, sizeof word);
}

// Loads 1 to 7 bytes as the low bytes of a word, in two or three pieces, which may overlap.
HWY_INLINE std::uint64_t load_part(const std::byte* from, std::size_t bytes) {
  const std::size_t last = bytes - 1;
  const std::size_t middle = bytes / 2;
  if (bytes >= 4)
    return load_word<std::uint32_t>(from) | load_word<std::uint32_t>(from + bytes - 4) << (8 * (bytes - 4));
  return load_word<std::uint8_t>(from) | load_word<std::uint8_t>(from + middle) << (8 * middle) |
         load_word<std::uint8_t>(from + last) << (8 * last);
}
HWY_INLINE void store_part(std::uint64_t word, std::byte* to, std::size_t bytes) {
  const std::size_t last = bytes - 1;
  const std::size_t middle = bytes / 2;
  if (bytes >= 4) {
    store_word<std::uint32_t>(word, to);
    store_word<std::uint32_t>(word >> (8 * (bytes - 4)), to + bytes - 4);
  } else {
    store_word<std::uint8_t>(word, to);
    store_word<std::uint8_t>(word >> (8 * middle), to + middle);
    store_word<std::uint8_t>(word >> (8 * last), to + last);
  }
}

// Loads the first `bytes` of a vector, at least 1 and fewer than all, in pieces: halves of a vector while
// they fit, then a word, then part of a word.
template<class D8>
HWY_INLINE hn::Vec<D8> load_pieces(D8 d, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kBytes = hn::MaxLanes(D8());
  if constexpr (kBytes < 16) {
    return hn::LowerHalf(d, load_pieces(hn::Twice<D8>(), from, bytes));
  } else if constexpr (kBytes == 16) {
    const hn::Half<D8> half;
    const hn::Repartition<std::uint64_t, hn::Half<D8>> word;
    if (bytes < 8) return hn::ZeroExtendVector(d, hn::BitCast(half, hn::Set(word, load_part(from, bytes))));
    const auto low = load_bytes(half, from);
    if (bytes == 8) return hn::ZeroExtendVector(d, low);
    const std::uint64_t high = load_word<std::uint64_t>(from + bytes - 8) >> (8 * (16 - bytes));
    return hn::Combine(d, hn::BitCast(half, hn::Set(word, high)), low);
  } else {
    constexpr std::size_t kHalf = kBytes / 2;
    const hn::Half<D8> half;
    if (bytes < kHalf) return hn::ZeroExtendVector(d, load_pieces(half, from, bytes));
    const auto low = load_bytes(half, from);
    if (bytes == kHalf) return hn::ZeroExtendVector(d, low);
    return hn::Combine(d, load_pieces(half, from + kHalf, bytes - kHalf), low);
  }
}
template<class D8>
HWY_INLINE void store_pieces([[maybe_unused]] D8 d, hn::Vec<D8> v, std::byte* to, std::size_t bytes) {
  constexpr std::size_t kBytes = hn::MaxLanes(D8());
  if constexpr (kBytes < 16) {
    const hn::Twice<D8> twice;
    store_pieces(twice, hn::ZeroExtendVector(twice, v), to, bytes);
  } else if constexpr (kBytes == 16) {
    const auto words = hn::BitCast(hn::Repartition<std::uint64_t, D8>(), v);
    const std::uint64_t low = hn::GetLane(words);
    if (bytes < 8) return store_part(low, to, bytes);
    store_word<std::uint64_t>(low, to);
    if (bytes == 8) return;
    const std::uint64_t high = hn::ExtractLane(words, 1);
    store_word<std::uint64_t>(low >> (8 * (bytes - 8)) | high << (8 * (16 - bytes)), to + bytes - 8);
  } else {
    constexpr std::size_t kHalf = kBytes / 2;
    const hn::Half<D8> half;
    if (bytes < kHalf) return store_pieces(half, hn::LowerHalf(half, v), to, bytes);
    store_bytes(half, hn::LowerHalf(half, v), to);
    if (bytes == kHalf) return;
    store_pieces(half, hn::UpperHalf(half, v), to + kHalf, bytes - kHalf);
  }
}

// Not inlined: the pieces, in every loop and for every source, would triple the size of this library, and
// save only two or three nanoseconds of a reduction.
template<class D8>
HWY_NOINLINE hn::Vec<D8> load_first_apart(D8 d, const std::byte* from, std::size_t bytes) {
  return load_pieces(d, from, bytes);
}
template<class D8>
HWY_NOINLINE void store_first_apart(D8 d, hn::Vec<D8> v, std::byte* to, std::size_t bytes) {
  store_pieces(d, v, to, bytes);
}

#if HWY_MEM_OPS_MIGHT_FAULT

template<class D8>
HWY_INLINE hn::Vec<D8> load_first(D8 d, const std::byte* from, std::size_t bytes) {
  return load_first_apart(d, from, bytes);
}
template<class D8>
HWY_INLINE void store_first(D8 d, hn::Vec<D8> v, std::byte* to, std::size_t bytes) {
  store_first_apart(d, v, to, bytes);
}

#else

// A mask keeps the processor from bytes outside. But if these lie in a page that it may not touch, it takes a
// slow path: 0.2 µs instead of a nanosecond, measured on Zen 4. So near a page's end the pieces are used.
template<class D8>
HWY_INLINE bool crosses_page(D8 d, const std::byte* at) {
  constexpr std::size_t kPage = 4096;
  return HWY_UNLIKELY(reinterpret_cast<std::uintptr_t>(at) % kPage > kPage - hn::Lanes(d));
}

template<class D8>
HWY_INLINE hn::Vec<D8> load_first(D8 d, const std::byte* from, std::size_t bytes) {
  if (crosses_page(d, from)) return load_first_apart(d, from, bytes);
  return hn::MaskedLoad(hn::FirstN(d, bytes), d, reinterpret_cast<const std::uint8_t*>(from));
}
template<class D8>
HWY_INLINE void store_first(D8 d, hn::Vec<D8> v, std::byte* to, std::size_t bytes) {
  if (crosses_page(d, to)) return store_first_apart(d, v, to, bytes);
  hn::BlendedStore(v, hn::FirstN(d, bytes), d, reinterpret_cast<std::uint8_t*>(to));
}

#endif  // HWY_MEM_OPS_MIGHT_FAULT

// The first `count` lanes of a vector: at least one, and fewer than all. A load sets the others to zero.
template<class D>
HWY_INLINE hn::Vec<D> load_some(D d, const std::byte* from, std::size_t count) {
  return hn::BitCast(d, load_first(BytesOf<D>(), from, count * sizeof(hn::TFromD<D>)));
}
template<class D>
HWY_INLINE void store_some(D, hn::Vec<D> v, std::byte* to, std::size_t count) {
  const BytesOf<D> d8;
  store_first(d8, hn::BitCast(d8, v), to, count * sizeof(hn::TFromD<D>));
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
