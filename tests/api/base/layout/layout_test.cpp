#include "api/base/layout/layout.hpp"

#include "tests/api/base/layout/replay.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using test::Items;

constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();

Layout layout_of(const Items& shape, std::vector<Layout::Axis> axes,
                 Layout::Order order = Layout::Order::kInnermostFirst) {
  Result<Layout> layout = Layout::make(shape, std::move(axes), order);
  EXPECT_TRUE(layout.has_value()) << layout.error().text();
  return layout.value();
}

// `items` rows over FSDP `fsdp` and, inside it, tp `tp`: rank d·tp + t.
Layout strided(std::int64_t items, std::int64_t tp, std::int64_t fsdp,
               Layout::Order order = Layout::Order::kInnermostFirst) {
  return layout_of({items}, {{"dp_shard", fsdp, Placement::shard(0)}, {"tp", tp, Placement::shard(0)}},
                   order);
}

// The rows of a rank of a layout of one dim.
Items rows(const Layout& layout, std::int64_t rank) {
  Items found;
  for (const Split::Interval& interval : layout.intervals(rank, 0))
    for (std::int64_t i = 0; i < interval.length; ++i) found.push_back(interval.offset + i);
  return found;
}

// The rows of all ranks, those of one coordinate along dp_shard end to end.
Items all_rows(const Layout& layout) {
  Items found;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank)
    for (const std::int64_t row : rows(layout, rank)) found.push_back(row);
  return found;
}

std::string refusal(const Items& shape, std::vector<Layout::Axis> axes) {
  const Result<Layout> layout = Layout::make(shape, std::move(axes));
  EXPECT_FALSE(layout.has_value());
  if (layout.has_value()) return "";
  EXPECT_EQ(layout.error().code(), Code::kBadArgument);
  return layout.error().message();
}

TEST(Layouts, WithoutAxesAreOneRankThatHasAll) {
  const Layout layout = layout_of({7, 9}, {});
  EXPECT_EQ(layout.ranks(), 1);
  EXPECT_EQ(layout.local_elements(0), 63);
  EXPECT_EQ(layout.pieces(0), (std::vector<Layout::Piece>{{Box{2, {}, {7, 9}}, {}}}));
}

TEST(Layouts, OfAScalarHaveOneElementOnEachRank) {
  const Layout layout = layout_of({}, {{"dp", 3, Placement::replicate()}});
  EXPECT_EQ(layout.pieces(2), (std::vector<Layout::Piece>{{Box{}, {}}}));
  EXPECT_EQ(layout.local_elements(2), 1);
}

// Goal:   case F8: 5 rows over 4 ranks, and 1 row over 2.
TEST(Layouts, MayLeaveARankWithoutRows) {
  const Layout layout = layout_of({5, 3}, {{"dp_shard", 4, Placement::shard(0)}});
  EXPECT_EQ(layout.local_shape(0), (Index{2, 3}));
  EXPECT_EQ(layout.local_shape(1), (Index{2, 3}));
  EXPECT_EQ(layout.local_shape(2), (Index{1, 3}));
  EXPECT_EQ(layout.local_shape(3), (Index{0, 3}));
  EXPECT_EQ(layout.local_elements(3), 0);
  EXPECT_EQ(rows(strided(1, 1, 2), 0), (Items{0}));
  EXPECT_EQ(rows(strided(1, 1, 2), 1), (Items{}));
}

// Goal:   case X1: FSDP divides what tp left. Shard after Shard in the order of the mesh would give other
//         rows.
TEST(Layouts, CutTheInnermostAxisFirst) {
  const Layout two = strided(8, 2, 2);
  EXPECT_EQ(rows(two, 0), (Items{0, 1}));
  EXPECT_EQ(rows(two, 1), (Items{4, 5}));
  EXPECT_EQ(rows(two, 2), (Items{2, 3}));
  EXPECT_EQ(rows(two, 3), (Items{6, 7}));
  EXPECT_EQ(all_rows(two), (Items{0, 1, 4, 5, 2, 3, 6, 7}));

  const Layout four = strided(8, 2, 4);
  for (std::int64_t d = 0; d < 4; ++d)
    for (std::int64_t t = 0; t < 2; ++t) EXPECT_EQ(rows(four, d * 2 + t), (Items{d + 4 * t}));
}

TEST(Layouts, CutTheOutermostAxisFirstIfToldSo) {
  const Layout layout = strided(8, 2, 2, Layout::Order::kOutermostFirst);
  EXPECT_EQ(all_rows(layout), (Items{0, 1, 2, 3, 4, 5, 6, 7}));
}

// Goal:   case X2: each tp rank divides its own rows, however many they are.
TEST(Layouts, CutWhatTheCutBeforeLeftAtThatCoordinate) {
  const Layout seven = strided(7, 2, 2);
  EXPECT_EQ(rows(seven, 0), (Items{0, 1}));
  EXPECT_EQ(rows(seven, 2), (Items{2, 3}));
  EXPECT_EQ(rows(seven, 1), (Items{4, 5}));
  EXPECT_EQ(rows(seven, 3), (Items{6}));

  const Layout ten = strided(10, 4, 2);
  const std::vector<Items> expected_of_ten = {{0, 1}, {3, 4}, {6, 7}, {9}, {2}, {5}, {8}, {}};
  for (std::int64_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(rows(ten, rank), expected_of_ten[static_cast<std::size_t>(rank)]) << rank;

  const Layout eleven = strided(11, 2, 3);
  const std::vector<Items> expected_of_eleven = {{0, 1}, {6, 7}, {2, 3}, {8, 9}, {4, 5}, {10}};
  for (std::int64_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(rows(eleven, rank), expected_of_eleven[static_cast<std::size_t>(rank)]) << rank;

  const Layout nine = strided(9, 2, 4);
  const std::vector<Items> expected_of_nine = {{0, 1}, {5}, {2, 3}, {6}, {4}, {7}, {}, {8}};
  for (std::int64_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(rows(nine, rank), expected_of_nine[static_cast<std::size_t>(rank)]) << rank;
}

// Goal:   case X2: a collective of the FSDP group pads each rank to the most rows of the group.
TEST(Layouts, HaveOtherPaddedRowsOnEachTpRank) {
  const Layout nine = strided(9, 2, 4);
  for (std::int64_t t = 0; t < 2; ++t) {
    std::int64_t most = 0;
    for (std::int64_t d = 0; d < 4; ++d) most = std::max(most, nine.local_shape(d * 2 + t)[0]);
    EXPECT_EQ(most, t == 0 ? 2 : 1);
  }
}

// Goal:   case X3: disjoint, complete, and the inverse formula finds rank and place of each row.
TEST(Layouts, OfRowsAgreeWithTheInverseFormula) {
  for (std::int64_t items = 1; items <= 64; ++items)
    for (const std::int64_t tp : {2, 3, 4, 8})
      for (const std::int64_t fsdp : {2, 3, 4, 8}) {
        const Layout layout = strided(items, tp, fsdp);
        Items found = all_rows(layout);
        std::sort(found.begin(), found.end());
        Items expected(static_cast<std::size_t>(items));
        std::iota(expected.begin(), expected.end(), 0);
        ASSERT_EQ(found, expected) << items << " rows, tp " << tp << ", FSDP " << fsdp;
        const std::int64_t of_tp = (items + tp - 1) / tp;
        for (std::int64_t row = 0; row < items; ++row) {
          const std::int64_t t = row / of_tp;
          const std::int64_t of_fsdp = (std::min(of_tp, items - t * of_tp) + fsdp - 1) / fsdp;
          const std::int64_t d = (row - t * of_tp) / of_fsdp;
          const auto place = static_cast<std::size_t>((row - t * of_tp) % of_fsdp);
          ASSERT_EQ(rows(layout, d * tp + t).at(place), row)
              << items << " rows, tp " << tp << ", FSDP " << fsdp;
        }
      }
}

// Goal:   case X4: a row-parallel weight, whose columns tp divides.
TEST(Layouts, DivideEachDimByItself) {
  const Layout layout =
      layout_of({8, 6}, {{"dp_shard", 4, Placement::shard(0)}, {"tp", 2, Placement::shard(1)}});
  for (std::int64_t d = 0; d < 4; ++d)
    for (std::int64_t t = 0; t < 2; ++t)
      EXPECT_EQ(layout.pieces(d * 2 + t), (std::vector<Layout::Piece>{{Box{2, {2 * d, 3 * t}, {2, 3}}, {}}}));
}

// Goal:   case T10: a linear layer of 128 to 128 over tp 4, its bias sharded with the rows or on every rank.
TEST(Layouts, CountTheParametersOfATensorParallelLayer) {
  const Layout by_rows = layout_of({128, 128}, {{"tp", 4, Placement::shard(0)}});
  const Layout by_columns = layout_of({128, 128}, {{"tp", 4, Placement::shard(1)}});
  const Layout bias_by_rows = layout_of({128}, {{"tp", 4, Placement::shard(0)}});
  const Layout whole_bias = layout_of({128}, {{"tp", 4, Placement::replicate()}});
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(by_rows.local_elements(rank) + bias_by_rows.local_elements(rank), 4128);
    EXPECT_EQ(by_columns.local_elements(rank) + whole_bias.local_elements(rank), 4224);
  }
}

// Goal:   case T11: q, k and v of 8, 4 and 4 rows over tp 2; then FSDP divides the 8 rows of a tp rank, laid
//         end to end.
TEST(Layouts, CutTheIntervalsOfAFusedDimLaidEndToEnd) {
  const Placement fused = Placement::shard(0, Split::fused(Split::balanced(), {8, 4, 4}));
  const Layout tp = layout_of({16, 3}, {{"tp", 2, fused}});
  EXPECT_EQ(tp.pieces(0), (std::vector<Layout::Piece>{{Box{2, {0, 0}, {4, 3}}, {0, 0}},
                                                      {Box{2, {8, 0}, {2, 3}}, {4, 0}},
                                                      {Box{2, {12, 0}, {2, 3}}, {6, 0}}}));
  EXPECT_EQ(tp.local_shape(0), (Index{8, 3}));

  const Layout both = layout_of({16}, {{"dp_shard", 3, Placement::shard(0)}, {"tp", 2, fused}});
  EXPECT_EQ(rows(both, 0), (Items{0, 1, 2}));
  EXPECT_EQ(rows(both, 2), (Items{3, 8, 9}));
  EXPECT_EQ(rows(both, 4), (Items{12, 13}));
  EXPECT_EQ(rows(both, 1), (Items{4, 5, 6}));
  EXPECT_EQ(rows(both, 3), (Items{7, 10, 11}));
  EXPECT_EQ(rows(both, 5), (Items{14, 15}));
}

TEST(Layouts, HaveAPieceForEachIntervalOfEachDim) {
  const Layout layout =
      layout_of({4, 6}, {{"a", 2, Placement::shard(0, Split::fused(Split::ceil(), {2, 2}))},
                         {"b", 3, Placement::shard(1, Split::fused(Split::ceil(), {3, 3}))}});
  // Coordinates (1, 2): rows 1 and 3, columns 2 and 5.
  EXPECT_EQ(layout.pieces(5), (std::vector<Layout::Piece>{{Box{2, {1, 2}, {1, 1}}, {0, 0}},
                                                          {Box{2, {1, 5}, {1, 1}}, {0, 1}},
                                                          {Box{2, {3, 2}, {1, 1}}, {1, 0}},
                                                          {Box{2, {3, 5}, {1, 1}}, {1, 1}}}));
}

// Goal:   case C7: an empty shard is not saved, so it cannot be taken for another one at its offset.
TEST(Layouts, HaveNoPieceWhereARankHasNothing) {
  for (const std::int64_t items : {9, 5}) {
    const Layout layout = strided(items, 2, 4);
    std::set<std::int64_t> offsets;
    std::int64_t pieces = 0;
    for (std::int64_t rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(layout.pieces(rank).empty(), layout.local_elements(rank) == 0);
      for (const Layout::Piece& piece : layout.pieces(rank)) {
        offsets.insert(piece.box.offset[0]);
        ++pieces;
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(offsets.size()), pieces) << items << " rows";
  }
  EXPECT_TRUE(strided(9, 2, 4).pieces(6).empty());
}

TEST(Layouts, KnowCoordinatesAndReplicas) {
  const Layout layout = layout_of({8, 8}, {{"pp", 2, Placement::partial()},
                                           {"dp_replicate", 2, Placement::replicate()},
                                           {"dp_shard", 3, Placement::shard(0)},
                                           {"tp", 2, Placement::replicate()}});
  EXPECT_EQ(layout.ranks(), 24);
  EXPECT_EQ(layout.stride(0), 12);
  EXPECT_EQ(layout.stride(3), 1);
  EXPECT_EQ(layout.coordinate(21, 0), 1);
  EXPECT_EQ(layout.coordinate(21, 1), 1);
  EXPECT_EQ(layout.coordinate(21, 2), 1);
  EXPECT_EQ(layout.coordinate(21, 3), 1);
  EXPECT_EQ(layout.replicas(21), (Items{14, 15, 20, 21}));
  EXPECT_EQ(layout.first_replica(21), 14);
  EXPECT_EQ(layout.axis_text(3), "axis 3 (tp)");
}

TEST(Layouts, TakeGivenLengthsOfAFirstCut) {
  const Layout layout = layout_of(
      {9}, {{"dp_shard", 2, Placement::shard(0)}, {"tp", 3, Placement::shard(0, Split::given({1, 0, 8}))}});
  EXPECT_EQ(rows(layout, 0), (Items{0}));
  EXPECT_EQ(rows(layout, 1), (Items{}));
  EXPECT_EQ(rows(layout, 2), (Items{1, 2, 3, 4}));
  EXPECT_EQ(rows(layout, 5), (Items{5, 6, 7, 8}));
}

TEST(Layouts, RefuseLengthsThatDoNotFitWhatIsLeft) {
  // tp leaves 5 rows and 4; the given lengths fit the first alone.
  EXPECT_EQ(
      refusal({9},
              {{"dp_shard", 2, Placement::shard(0, Split::given({3, 2}))}, {"tp", 2, Placement::shard(0)}}),
      "axis 0 (dp_shard) cannot divide dim 0: the given lengths add up to more than the 4 items: length 1, "
      "which is 2, ends beyond them");
  EXPECT_EQ(refusal({4, 9}, {{"", 2, Placement::shard(1, Split::aligned(0))}}),
            "axis 0 cannot divide dim 1: aligned(0): the grain is 0; it must be 1 or more");
}

TEST(Layouts, RefuseShapesThatAreNone) {
  EXPECT_EQ(refusal(Items(9, 1), {}), "the tensor has 9 dims; at most 8 are possible");
  EXPECT_EQ(refusal({4, -2}, {}), "dim 1 of the tensor has length -2; it must be 0 or more");
  EXPECT_EQ(refusal({kLongest, 2}, {}),
            "a tensor of shape [9223372036854775807, 2] is too large: dim 1 takes it beyond 2^63 - 1");
  // Its strides would not fit either.
  EXPECT_EQ(refusal({0, kLongest, 2}, {}),
            "a tensor of shape [0, 9223372036854775807, 2] is too large: dim 2 takes it beyond 2^63 - 1");
}

TEST(Layouts, RefuseAxesThatAreNone) {
  EXPECT_EQ(refusal({4}, std::vector<Layout::Axis>(9)), "9 axes; at most 8 are possible");
  EXPECT_EQ(refusal({4}, {{"tp", 0, Placement::replicate()}}),
            "axis 0 (tp) has 0 ranks; it must have 1 or more");
  EXPECT_EQ(refusal({4}, {{"dp", 256, Placement::replicate()}, {"tp", 257, Placement::replicate()}}),
            "axis 1 (tp) has 257 ranks, which makes more than 65536 with the axes before it");
  EXPECT_EQ(refusal({4}, {{"tp", 2, Placement::shard(1)}}),
            "axis 0 (tp) shards dim 1; the tensor has 1 dims, counted from 0");
  EXPECT_EQ(refusal({4}, {{"tp", 2, Placement::shard(-1)}}),
            "axis 0 (tp) shards dim -1; the tensor has 1 dims, counted from 0");
  EXPECT_EQ(refusal({4}, {{"tp", 2, Placement::partial(MUSTER_PREMUL_SUM)}}),
            "axis 0 (tp) is partial by reduction 6 (premul_sum); sum, avg, max, min and prod are possible");
}

TEST(Layouts, KeepTheirLimits) {
  const Split ones = Split::fused(Split::ceil(), Items(1024, 2));  // each rank has every second item
  const Layout::Axis axis{"", 2, Placement::shard(0, ones)};
  EXPECT_EQ(layout_of({2048}, {axis}).pieces(1).size(), 1024u);
  EXPECT_EQ(refusal({2048, 2048}, {axis, {"", 2, Placement::shard(1, ones)}}),
            "dim 1 has up to 1024 intervals, which makes more than 65536 pieces of a rank");
  const Split many = Split::fused(Split::ceil(), Items(1024, 1025));
  EXPECT_EQ(refusal({1024 * 1025}, {{"tp", 1025, Placement::shard(0, many)}}),
            "axis 0 (tp) cuts dim 0 into more than 1048576 intervals; fuse fewer tensors");
}

TEST(Layouts, OfTheMostRanksCutTheLongestDim) {
  const Layout layout =
      layout_of({kLongest}, {{"", 256, Placement::shard(0)}, {"", 256, Placement::shard(0)}});
  EXPECT_EQ(layout.ranks(), 65536);
  const Split::Interval last = layout.intervals(65535, 0).back();
  EXPECT_EQ(last.offset + last.length, kLongest);
}

TEST(LayoutsDeathTest, OfARankOutsideTheMeshIsABug) {
  EXPECT_DEATH(strided(8, 2, 2).intervals(4, 0), "rank");
}

}  // namespace
}  // namespace muster
