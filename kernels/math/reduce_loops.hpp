// The loops of reduce(), compiled once per SIMD target. Included by reduce_{real,half,integer}.cpp alone,
// which add what a dtype means: a Format (how elements become lanes of the accumulation type) and the
// operators on those lanes.
//
// An operator has prepare (one source's lanes), combine (two subtrees) and finish (before the result is
// stored).
//
// Sources in numbers of 1, 2, 4 and 8 are reduced in registers. Other numbers are cut into such blocks,
// largest first; each block's result is a full subtree, kept in a tile that stays in L1, and equal subtrees
// are merged as a binary counter carries. A tile of the target is written after all its sources have been
// read, so the target may be one of them.
#if defined(MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#undef MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#else
#define MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#endif

#include "kernels/math/reduce_formats.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores through bytes: an element's address need not be a multiple of its size.
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

#else

template<class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}
template<class D>
HWY_INLINE void store_bytes(D, hn::Vec<D> v, std::byte* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(to));
}

#endif

// A Format whose elements are its lanes.
template<class T>
struct PlainFormat {
  using Lane = T;
  using D = hn::ScalableTag<T>;
  static constexpr std::size_t kBytes = sizeof(T);
  static HWY_INLINE hn::Vec<D> load(const std::byte* from) { return load_bytes(D(), from); }
  static HWY_INLINE void store(hn::Vec<D> v, std::byte* to) { store_bytes(D(), v, to); }
};

// One whole vector of each source, `offset` bytes in.
template<class Format, std::size_t K>
struct FullVectors {
  std::array<const std::byte*, K> sources;
  std::size_t offset;
  HWY_INLINE hn::Vec<typename Format::D> load(std::size_t k) const {
    return Format::load(sources[k] + offset);
  }
};

// The last, incomplete vector of each source. Lanes past the end are zeros, and are computed but never
// stored.
template<class Format, std::size_t K>
struct RestVectors {
  std::array<const std::byte*, K> sources;
  std::size_t offset;
  std::size_t bytes;
  HWY_INLINE hn::Vec<typename Format::D> load(std::size_t k) const {
    alignas(HWY_MAX_BYTES) std::byte padded[HWY_MAX_BYTES] = {};
    std::memcpy(padded, sources[k] + offset, bytes);
    return Format::load(padded);
  }
};

// Balanced tree over K (a power of two) sources, in registers.
template<std::size_t K, class Op, class Vectors>
HWY_INLINE auto tree(const Op& op, const Vectors& vectors, std::size_t first) {
  if constexpr (K == 1) {
    return op.prepare(vectors.load(first));
  } else {
    const auto left = tree<K / 2>(op, vectors, first);
    const auto right = tree<K / 2>(op, vectors, first + K / 2);
    return op.combine(left, right);
  }
}

// Finishes results and stores them as elements.
template<class Format, class Op>
struct ToTarget {
  const Op& op;
  std::byte* target;
  HWY_INLINE void put(hn::Vec<typename Format::D> v, std::size_t i) const {
    Format::store(op.finish(v), target + i * Format::kBytes);
  }
  HWY_INLINE void put_rest(hn::Vec<typename Format::D> v, std::size_t i, std::size_t count) const {
    alignas(HWY_MAX_BYTES) std::byte padded[HWY_MAX_BYTES];
    Format::store(op.finish(v), padded);
    std::memcpy(target + i * Format::kBytes, padded, count * Format::kBytes);
  }
};

// Keeps results as lanes of a tile, whose size is a multiple of every vector's.
template<class Format>
struct ToTile {
  typename Format::Lane* tile;
  HWY_INLINE void put(hn::Vec<typename Format::D> v, std::size_t i) const {
    hn::Store(v, typename Format::D(), tile + i);
  }
  HWY_INLINE void put_rest(hn::Vec<typename Format::D> v, std::size_t i, std::size_t) const { put(v, i); }
};

// Reduces K sources, `count` elements from element `first` on.
template<class Format, std::size_t K, class Op, class Sink>
HWY_NOINLINE void fold(const Op& op, const std::byte* const* from, std::size_t first, std::size_t count,
                       const Sink& sink) {
  std::array<const std::byte*, K> sources;
  for (std::size_t k = 0; k < K; ++k) sources[k] = from[k] + first * Format::kBytes;
  const std::size_t n = hn::Lanes(typename Format::D());
  std::size_t i = 0;
  for (; i + n <= count; i += n)
    sink.put(tree<K>(op, FullVectors<Format, K>{sources, i * Format::kBytes}, 0), i);
  if (i == count) return;
  const RestVectors<Format, K> rest{sources, i * Format::kBytes, (count - i) * Format::kBytes};
  sink.put_rest(tree<K>(op, rest, 0), i, count - i);
}

constexpr std::size_t kTileBytes = 4096;
// Subtrees alive at once: one per power of two up to kReduceSourcesMax.
constexpr std::size_t kTilesMax = 13;

template<class Format>
struct Tiles {
  static constexpr std::size_t kLanes = kTileBytes / sizeof(typename Format::Lane);
  alignas(HWY_MAX_BYTES) typename Format::Lane lanes[kTilesMax][kLanes];
};

// tiles[to] = combine(tiles[to], tiles[to + 1]).
template<class Format, class Op>
HWY_NOINLINE void merge(const Op& op, Tiles<Format>& tiles, std::size_t to, std::size_t count) {
  const typename Format::D d;
  auto* left = tiles.lanes[to];
  const auto* right = tiles.lanes[to + 1];
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Store(op.combine(hn::Load(d, left + i), hn::Load(d, right + i)), d, left + i);
}

template<class Format, class Op>
HWY_NOINLINE void finish(const Op& op, const Tiles<Format>& tiles, std::byte* target, std::size_t count) {
  const typename Format::D d;
  const ToTarget<Format, Op> sink{op, target};
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) sink.put(hn::Load(d, tiles.lanes[0] + i), i);
  if (i < count) sink.put_rest(hn::Load(d, tiles.lanes[0] + i), i, count - i);
}

template<class Format, class Op>
void fold_block(const Op& op, std::size_t block, const std::byte* const* from, std::size_t first,
                std::size_t count, const ToTile<Format>& sink) {
  switch (block) {
    case 8:
      return fold<Format, 8>(op, from, first, count, sink);
    case 4:
      return fold<Format, 4>(op, from, first, count, sink);
    case 2:
      return fold<Format, 2>(op, from, first, count, sink);
    default:
      return fold<Format, 1>(op, from, first, count, sink);
  }
}

// One tile of any number of sources.
template<class Format, class Op>
void reduce_tile(const Op& op, const Reduction& r, Tiles<Format>& tiles, std::size_t first,
                 std::size_t count) {
  std::array<std::size_t, kTilesMax> weight{};  // sources in each tile: decreasing
  std::size_t depth = 0;
  for (std::size_t k = 0; k < r.source_count;) {
    std::size_t block = 8;
    while (block > r.source_count - k) block /= 2;
    fold_block<Format>(op, block, r.sources + k, first, count, ToTile<Format>{tiles.lanes[depth]});
    weight[depth++] = block;
    k += block;
    for (; depth >= 2 && weight[depth - 2] == weight[depth - 1]; --depth) {
      merge(op, tiles, depth - 2, count);
      weight[depth - 2] *= 2;
    }
  }
  for (; depth >= 2; --depth) merge(op, tiles, depth - 2, count);
  finish(op, tiles, r.target + first * Format::kBytes, count);
}

template<class Format, class Op>
void reduce_with(const Op& op, const Reduction& r) {
  const ToTarget<Format, Op> sink{op, r.target};
  switch (r.source_count) {
    case 1:
      return fold<Format, 1>(op, r.sources, 0, r.count, sink);
    case 2:
      return fold<Format, 2>(op, r.sources, 0, r.count, sink);
    case 4:
      return fold<Format, 4>(op, r.sources, 0, r.count, sink);
    case 8:
      return fold<Format, 8>(op, r.sources, 0, r.count, sink);
    default:
      break;
  }
  Tiles<Format> tiles;
  for (std::size_t first = 0; first < r.count; first += Tiles<Format>::kLanes)
    reduce_tile(op, r, tiles, first, std::min(Tiles<Format>::kLanes, r.count - first));
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
