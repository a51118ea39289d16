// The loops of reduce(), compiled once per SIMD target. Only reduce_{real,half,quarter,integer}.cpp include
// them. They add a Format (how elements become lanes of the accumulation type) and the operators on lanes.
//
// A Format has Elements, the tag of a vector of elements as they lie in memory, D, the tag of as many lanes,
// and widen and narrow between the two. An operator has prepare (one source's lanes), combine (two subtrees)
// and finish (before the result is narrowed). kFewLoops marks a rare operator: fewer loops are compiled for
// it, and each takes a little longer.
//
// One to eight sources are reduced in registers. More are cut into blocks of eight, the last of which may be
// shorter. Each block's result is a full subtree, kept in a tile that stays in L1, and equal subtrees are
// merged as a binary counter carries. A tile of the target is written after all its sources have been read,
// so the target may be one of them.
#if defined(MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#undef MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#else
#define MUSTER_KERNELS_MATH_REDUCE_LOOPS_HPP
#endif

#include "kernels/math/reduce_formats.hpp"
#include "kernels/math/reduce_memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace muster::math::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// More sources than this are cut into blocks.
constexpr std::size_t kBlock = 8;

// A Format whose elements are its lanes.
template<class T>
struct PlainFormat {
  using Lane = T;
  using D = hn::ScalableTag<T>;
  using Elements = D;
  static HWY_INLINE hn::Vec<D> widen(hn::Vec<D> v) { return v; }
  static HWY_INLINE hn::Vec<D> narrow(hn::Vec<D> v) { return v; }
};

// The base of Formats with elements of type T and f32 lanes.
template<class T>
struct FloatLanes {
  using Lane = float;
  using D = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<D>;
  using DI = hn::RebindToSigned<D>;
  using Elements = hn::Rebind<T, D>;
  using VI = hn::Vec<DI>;

  static HWY_INLINE VI word(std::int32_t bits) { return hn::Set(DI(), bits); }
  static HWY_INLINE hn::Vec<D> real(std::int32_t bits) { return hn::BitCast(D(), word(bits)); }
};

template<class Format>
constexpr std::size_t kElementBytes = sizeof(hn::TFromD<typename Format::Elements>);

// One vector of each source, `offset` bytes in: a whole one, or the last, which has `count` lanes. Lanes past
// the end are computed but never stored.
template<class Format, std::size_t K, bool kWhole>
struct Vectors {
  std::array<const std::byte*, K> sources;
  std::size_t offset;
  std::size_t count;
  HWY_INLINE hn::Vec<typename Format::D> load(std::size_t k) const {
    const typename Format::Elements d;
    if constexpr (kWhole)
      return Format::widen(load_bytes(d, sources[k] + offset));
    else
      return Format::widen(load_some(d, sources[k] + offset, count));
  }
};

// The tree over K sources, in registers.
template<std::size_t K, class Op, class From>
HWY_INLINE auto tree(const Op& op, const From& from, std::size_t first) {
  if constexpr (K == 1) {
    return op.prepare(from.load(first));
  } else {
    constexpr std::size_t kLeft = std::bit_floor(K - 1);
    const auto left = tree<kLeft>(op, from, first);
    const auto right = tree<K - kLeft>(op, from, first + kLeft);
    return op.combine(left, right);
  }
}

// The tree over `Least` to seven sources, whose number is known only when the loop runs.
template<std::size_t Least, class Op, class From>
HWY_INLINE auto tree_of_some(const Op& op, const From& from, std::size_t source_count) {
  if constexpr (Least > 4) {
    auto right = op.prepare(from.load(4));
    if (source_count > 5) right = op.combine(right, op.prepare(from.load(5)));
    if (source_count > 6) right = op.combine(right, op.prepare(from.load(6)));
    return op.combine(tree<4>(op, from, 0), right);
  } else {
    if (source_count > 4) return tree_of_some<5>(op, from, source_count);
    if (source_count == 4) return tree<4>(op, from, 0);
    auto v = op.prepare(from.load(0));
    if (source_count > 1) v = op.combine(v, op.prepare(from.load(1)));
    if (source_count > 2) v = op.combine(v, op.prepare(from.load(2)));
    return v;
  }
}

// How many sources a loop reduces: exactly `most`, or from `least` to `most`.
struct SourceCount {
  std::size_t least;
  std::size_t most;
};

template<SourceCount kSources, class Op, class From>
HWY_INLINE auto tree_over(const Op& op, const From& from, std::size_t source_count) {
  if constexpr (kSources.least == kSources.most)
    return tree<kSources.most>(op, from, 0);
  else
    return tree_of_some<kSources.least>(op, from, source_count);
}

// Writes results to the target: finished, and as elements.
template<class Format, class Op>
struct ToTarget {
  std::byte* target;
  HWY_INLINE void put(const Op& op, hn::Vec<typename Format::D> v, std::size_t i) const {
    store_bytes(typename Format::Elements(), Format::narrow(op.finish(v)),
                target + i * kElementBytes<Format>);
  }
  HWY_INLINE void put_rest(const Op& op, hn::Vec<typename Format::D> v, std::size_t i,
                           std::size_t count) const {
    store_some(typename Format::Elements(), Format::narrow(op.finish(v)), target + i * kElementBytes<Format>,
               count);
  }
};

// Writes the result of some of the sources to a tile, as lanes. A tile's size is a multiple of every
// vector's.
template<class Format, class Op>
struct ToTile {
  typename Format::Lane* tile;
  HWY_INLINE void put(const Op& /*op*/, hn::Vec<typename Format::D> v, std::size_t i) const {
    hn::Store(v, typename Format::D(), tile + i);
  }
  HWY_INLINE void put_rest(const Op& op, hn::Vec<typename Format::D> v, std::size_t i,
                           std::size_t /*count*/) const {
    put(op, v, i);
  }
};

// Elements [first, first + count) of some sources.
struct SourceRange {
  const std::byte* const* sources;
  std::size_t source_count;
  std::size_t first;
  std::size_t count;
};

template<class Format, SourceCount kSources, class Op, class To>
HWY_INLINE void fold(const Op& op, const SourceRange& range, const To& to) {
  constexpr std::size_t kBytes = kElementBytes<Format>;
  constexpr std::size_t kMost = kSources.most;
  const std::size_t source_count = kSources.least == kMost ? kMost : range.source_count;
  std::array<const std::byte*, kMost> sources;
#pragma GCC unroll 8
  for (std::size_t k = 0; k < kMost; ++k)
    sources[k] = range.sources[std::min(k, source_count - 1)] + range.first * kBytes;
  const std::size_t count = range.count;
  const std::size_t n = hn::Lanes(typename Format::D());
  std::size_t i = 0;
  for (; i + n <= count; i += n)
    to.put(op, tree_over<kSources>(op, Vectors<Format, kMost, true>{sources, i * kBytes, n}, source_count),
           i);
  if (i == count) return;
  const Vectors<Format, kMost, false> rest{sources, i * kBytes, count - i};
  to.put_rest(op, tree_over<kSources>(op, rest, source_count), i, count - i);
}

// Reduces a full block of sources, or a shorter one, where the loop tests the number for each vector.
template<class Format, class Op, class To>
HWY_INLINE void fold_block(const Op& op, const SourceRange& range, const To& to) {
  if (range.source_count == kBlock) return fold<Format, SourceCount{kBlock, kBlock}>(op, range, to);
  fold<Format, SourceCount{1, kBlock - 1}>(op, range, to);
}

// One to eight sources.
template<class Format, class Op>
HWY_INLINE void fold_to_target(const Op& op, const SourceRange& range, std::byte* target) {
  const ToTarget<Format, Op> to{target};
  if constexpr (Op::kFewLoops) return fold_block<Format>(op, range, to);
  switch (range.source_count) {
    case 2:
      return fold<Format, SourceCount{2, 2}>(op, range, to);
    case 3:
      return fold<Format, SourceCount{3, 3}>(op, range, to);
    case 4:
      return fold<Format, SourceCount{4, 4}>(op, range, to);
    case kBlock:
      return fold<Format, SourceCount{kBlock, kBlock}>(op, range, to);
    default:
      return fold<Format, SourceCount{1, kBlock - 1}>(op, range, to);
  }
}

constexpr std::size_t kTileBytes = 4096;
// Subtrees alive at once: the last block, and one per power of two from a block to kReduceSourcesMax.
constexpr std::size_t kTilesMax = 11;

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
HWY_INLINE void finish(const Op& op, const Tiles<Format>& tiles, std::byte* target, std::size_t count) {
  const ToTarget<Format, Op> to{target};
  const typename Format::D d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) to.put(op, hn::Load(d, tiles.lanes[0] + i), i);
  if (i < count) to.put_rest(op, hn::Load(d, tiles.lanes[0] + i), i, count - i);
}

// One tile of any number of sources.
template<class Format, class Op>
void reduce_tile(const Op& op, const Reduction& r, Tiles<Format>& tiles, std::size_t first,
                 std::size_t count) {
  std::array<std::size_t, kTilesMax> weight{};  // sources in each tile: decreasing
  std::size_t depth = 0;
  for (std::size_t k = 0; k < r.source_count; ++depth) {
    const std::size_t block = std::min(kBlock, r.source_count - k);
    weight[depth] = block;
    fold_block<Format>(op, {r.sources + k, block, first, count}, ToTile<Format, Op>{tiles.lanes[depth]});
    k += block;
    for (; depth >= 1 && weight[depth - 1] == weight[depth]; --depth) {
      merge(op, tiles, depth - 1, count);
      weight[depth - 1] *= 2;
    }
  }
  for (; depth >= 2; --depth) merge(op, tiles, depth - 2, count);
  finish(op, tiles, r.target + first * kElementBytes<Format>, count);
}

// A function of its own, because the tiles would enlarge the frame of every short reduction.
template<class Format, class Op>
HWY_NOINLINE void reduce_in_tiles(const Op& op, const Reduction& r) {
  Tiles<Format> tiles;
  for (std::size_t first = 0; first < r.count; first += Tiles<Format>::kLanes)
    reduce_tile(op, r, tiles, first, std::min(Tiles<Format>::kLanes, r.count - first));
}

template<class Format, class Op>
void reduce_by(const Reduction& r) {
  const Op op(r);
  if (r.source_count > kBlock) return reduce_in_tiles<Format>(op, r);
  fold_to_target<Format>(op, {r.sources, r.source_count, 0, r.count}, r.target);
}

}  // namespace muster::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
