#include "api/base/layout/layout.hpp"

#include "tests/api/base/layout/drawn_layout.hpp"
#include "tests/support/property_cases.hpp"

#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {
namespace {

// The array that the pieces of a rank describe; a place that no piece has, or several have, is -1.
Items array_of_pieces(const Layout& layout, std::int64_t rank) {
  const Index local = layout.local_shape(rank);
  Items array(static_cast<std::size_t>(layout.local_elements(rank)), -1);
  std::vector<bool> met(array.size());
  for (const Layout::Piece& piece : layout.pieces(rank))
    for_each_index(piece.box.length, piece.box.dims, [&](const Index& index) {
      const std::size_t place = place_of(sum(piece.at, index), local, layout.dims());
      array.at(place) = met.at(place) ? -1
                                      : static_cast<std::int64_t>(place_of(sum(piece.box.offset, index),
                                                                           layout.shape(), layout.dims()));
      met.at(place) = true;
    });
  return array;
}

// Coordinates along the axes that are, or are not, replicated.
Items coordinates_of(const SaidLayout& said, std::int64_t rank, bool replicated) {
  Items found = said.coordinates(rank);
  for (std::size_t axis = 0; axis < found.size(); ++axis)
    if ((said.axes[axis].kind == Placement::Kind::kReplicate) != replicated) found[axis] = 0;
  return found;
}

void expect_replicas(const SaidLayout& said, const Layout& layout, std::int64_t rank) {
  Items replicas;
  for (std::int64_t other = 0; other < said.ranks(); ++other)
    if (coordinates_of(said, other, false) == coordinates_of(said, rank, false)) replicas.push_back(other);
  EXPECT_EQ(layout.replicas(rank), replicas);
  EXPECT_EQ(layout.first_replica(rank), replicas.front());
}

// Each element is in one shard: once among the ranks that differ only along sharded axes.
void expect_cover(const SaidLayout& said, const std::vector<Items>& arrays) {
  std::map<Items, Items> of_shards;
  for (std::int64_t rank = 0; rank < said.ranks(); ++rank) {
    Items others = said.coordinates(rank);
    for (std::size_t axis = 0; axis < others.size(); ++axis)
      if (said.axes[axis].kind == Placement::Kind::kShard) others[axis] = 0;
    const Items& array = arrays[static_cast<std::size_t>(rank)];
    Items& all = of_shards[others];
    all.insert(all.end(), array.begin(), array.end());
  }
  for (auto& [others, all] : of_shards) {
    std::sort(all.begin(), all.end());
    Items expected(static_cast<std::size_t>(said.elements()));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i);
    EXPECT_EQ(all, expected);
  }
}

// Goal:   every layout says of every rank what a replay of its cuts says, and covers the tensor.
// Method: paint each rank's array with the elements of its pieces, and compare it with the replayed one.
TEST(LayoutProperty, PiecesAreThoseOfAReplay) {
  const std::uint64_t last = property_cases(100'000);
  std::uint64_t strided = 0;
  std::uint64_t in_pieces = 0;
  std::uint64_t empty = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    Random random(seed);
    const Items shape = drawn_shape(random);
    const SaidLayout said = drawn_layout(random, shape, drawn_mesh(random, 12), Partials::kSome);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, said.text()));
    const Result<Layout> layout = said.make();
    ASSERT_TRUE(layout.has_value()) << layout.error().text();
    ASSERT_EQ(layout->ranks(), said.ranks());
    std::vector<Items> arrays;
    for (std::int64_t rank = 0; rank < said.ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      arrays.push_back(said.array(rank));
      ASSERT_EQ(array_of_pieces(*layout, rank), arrays.back());
      expect_replicas(said, *layout, rank);
      in_pieces += layout->pieces(rank).size() > 1 ? 1 : 0;
      empty += arrays.back().empty() ? 1 : 0;
    }
    expect_cover(said, arrays);
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      strided += std::count_if(said.axes.begin(), said.axes.end(), [dim](const SaidAxis& axis) {
                   return axis.ranks > 1 && axis.kind == Placement::Kind::kShard && axis.dim == dim;
                 }) > 1;
    if (HasFailure()) return;
  }
  // The drawn layouts include every kind often enough.
  EXPECT_GT(strided, last / 10);
  EXPECT_GT(in_pieces, last / 10);
  EXPECT_GT(empty, last / 5);
}

}  // namespace
}  // namespace muster::test
