// Random layouts: uneven, empty, strided (several axes cut one dim), fused, of given lengths, with replicas
// and partial axes.
#pragma once

#include "tests/api/base/layout/replay.hpp"
#include "tests/kernels/math/values.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace muster::test {

using math::test::Random;

inline std::int64_t drawn_number(Random& random, std::int64_t first, std::int64_t last) {
  return first + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(last - first + 1)));
}

// `parts` numbers that add up to `sum`.
inline Items drawn_lengths(Random& random, std::int64_t sum, std::int64_t parts) {
  Items cuts{0, sum};
  for (std::int64_t i = 1; i < parts; ++i) cuts.push_back(drawn_number(random, 0, sum));
  std::sort(cuts.begin(), cuts.end());
  Items lengths;
  for (std::size_t i = 1; i < cuts.size(); ++i) lengths.push_back(cuts[i] - cuts[i - 1]);
  return lengths;
}

inline Items drawn_shape(Random& random) {
  constexpr std::size_t kDims[] = {0, 1, 1, 1, 2, 2, 2, 3};
  const std::size_t dims =
      random.below(16) == 0 ? 4 + random.below(5) : kDims[random.below(std::size(kDims))];
  Items shape;
  for (std::size_t dim = 0; dim < dims; ++dim)
    shape.push_back(dims > 3                ? drawn_number(random, 1, 2)
                    : random.below(12) == 0 ? 0
                    : dims == 1             ? drawn_number(random, 1, 19)
                                            : drawn_number(random, 1, dims == 2 ? 7 : 4));
  return shape;
}

// Lengths of at most 3 axes, with a product of at most `ranks_max`.
inline Items drawn_mesh(Random& random, std::int64_t ranks_max) {
  Items mesh;
  std::int64_t ranks = 1;
  for (std::uint64_t axes = random.below(8) == 0 ? random.below(2) : 2 + random.below(2); axes > 0; --axes) {
    const std::int64_t length = std::min(drawn_number(random, 1, 4), ranks_max / ranks);
    mesh.push_back(length);
    ranks *= length;
  }
  return mesh;
}

// How many items the axes that are said already leave of a dim, at each of their coordinates.
inline std::set<std::int64_t> left(const SaidLayout& said, std::size_t dim) {
  std::set<std::int64_t> counts;
  for (std::int64_t rank = 0; rank < said.ranks(); ++rank)
    counts.insert(static_cast<std::int64_t>(said.items(rank, dim).size()));
  return counts;
}

inline void draw_shard(Random& random, const SaidLayout& said, SaidAxis& axis) {
  axis.dim = random.below(said.shape.size());
  const std::set<std::int64_t> counts = left(said, axis.dim);
  const bool even = counts.size() == 1;  // lengths must add up to what is left, at each coordinate
  axis.rule = static_cast<Rule>(random.below(even ? 4 : 3));
  if (axis.rule == Rule::kAligned) axis.grain = drawn_number(random, 1, 4);
  if (axis.rule == Rule::kGiven)
    axis.given = drawn_lengths(random, *counts.begin(), axis.ranks);
  else if (even && random.below(3) == 0)
    axis.fused = drawn_lengths(random, *counts.begin(), drawn_number(random, 1, 3));
  axis.kind = Placement::Kind::kShard;
}

enum class Partials : std::uint8_t { kNone, kSome };

inline SaidLayout drawn_layout(Random& random, const Items& shape, const Items& mesh, Partials partials) {
  SaidLayout said;
  said.shape = shape;
  said.order = random.below(4) == 0 ? Layout::Order::kOutermostFirst : Layout::Order::kInnermostFirst;
  for (const std::int64_t ranks : mesh) said.axes.push_back(SaidAxis{ranks});
  for (std::size_t k = 0; k < mesh.size(); ++k) {
    SaidAxis& axis = said.axes[said.order == Layout::Order::kOutermostFirst ? k : mesh.size() - 1 - k];
    const std::uint64_t what = random.below(8);
    if (what < 5 && !shape.empty()) draw_shard(random, SaidLayout(said), axis);
    if (what == 5 && partials == Partials::kSome) {
      constexpr muster_redop kRedops[] = {MUSTER_SUM, MUSTER_SUM, MUSTER_AVG,
                                          MUSTER_MAX, MUSTER_MIN, MUSTER_PROD};
      axis.kind = Placement::Kind::kPartial;
      axis.redop = kRedops[random.below(std::size(kRedops))];
    }
  }
  return said;
}

}  // namespace muster::test
