#include "api/base/layout/redistribution.hpp"

#include "tests/api/base/layout/replay.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Overlap = Redistribution::Overlap;

using test::Arrays;
using test::Items;
using Reductions = std::vector<Redistribution::AxisReduction>;
using Ranks = Redistribution::Ranks;

Layout layout_of(const Items& shape, std::vector<Layout::Axis> axes) {
  Result<Layout> layout = Layout::make(shape, std::move(axes));
  EXPECT_TRUE(layout.has_value()) << layout.error().text();
  return layout.value();
}

// A tensor of one dim over one axis.
Layout over(std::int64_t ranks, const Placement& placement, std::int64_t items = 7) {
  return layout_of({items}, {{"tp", ranks, placement}});
}

Redistribution redistribution(const Layout& from, const Layout& to, Ranks ranks = Ranks::kSame) {
  Result<Redistribution> made = Redistribution::make(from, to, ranks);
  EXPECT_TRUE(made.has_value()) << made.error().text();
  return made.value();
}

std::string refusal(const Layout& from, const Layout& to, Ranks ranks = Ranks::kSame) {
  const Result<Redistribution> made = Redistribution::make(from, to, ranks);
  EXPECT_FALSE(made.has_value());
  if (made.has_value()) return "";
  EXPECT_EQ(made.error().code(), Code::kBadArgument);
  return made.error().message();
}

// Each rank's array of a tensor whose elements are numbered.
Arrays<std::int64_t> numbered(const Layout& layout) {
  Arrays<std::int64_t> arrays;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    Items array(static_cast<std::size_t>(layout.local_elements(rank)));
    for (const Layout::Piece& piece : layout.pieces(rank))
      test::for_each_index(piece.box.length, layout.dims(), [&](const Index& index) {
        array[test::place_of(test::sum(piece.at, index), layout.local_shape(rank), layout.dims())] =
            static_cast<std::int64_t>(
                test::place_of(test::sum(piece.box.offset, index), layout.shape(), layout.dims()));
      });
    arrays.push_back(std::move(array));
  }
  return arrays;
}

void expect_carries(const Layout& from, const Layout& to, Ranks ranks = Ranks::kSame) {
  EXPECT_EQ(test::carried<std::int64_t>(redistribution(from, to, ranks), numbered(from), -1), numbered(to));
}

// The parts that `rank` receives: the sender of each, with its offset and length in dim 0.
std::vector<std::pair<std::int64_t, Split::Interval>> givers(const Redistribution& move, std::int64_t rank) {
  std::vector<std::pair<std::int64_t, Split::Interval>> found;
  const std::vector<Overlap> overlaps = move.receives(rank).value();
  for (const Overlap& overlap : overlaps)
    found.push_back({overlap.from, {overlap.box.offset[0], overlap.box.length[0]}});
  return found;
}

// Goal:   case T13: from each placement of 7 items over 4 ranks to each other one, and back.
TEST(Redistributions, OfShardsAndReplicasGoForthAndBack) {
  const std::vector<Placement> placements = {Placement::replicate(), Placement::shard(0),
                                             Placement::shard(0, Split::balanced()), Placement::shard(1),
                                             Placement::shard(1, Split::given({0, 5, 1, 1}))};
  for (const Placement& a : placements)
    for (const Placement& b : placements)
      expect_carries(layout_of({7, 7}, {{"tp", 4, a}}), layout_of({7, 7}, {{"tp", 4, b}}));
}

// How many elements a rank gives to each rank.
Items given(const Redistribution& move, std::int64_t rank, std::size_t ranks) {
  Items elements(ranks, 0);
  const std::vector<Overlap> overlaps = move.sends(rank).value();
  for (const Overlap& each : overlaps) elements[static_cast<std::size_t>(each.to)] += each.box.elements();
  return elements;
}

// Goal:   D2 of fields: rows [4, 2] of 6 x 5 become columns [1, 4], and each pair's elements are these.
TEST(Redistributions, OfUnevenRowsToColumnsGiveTheKnownNumbers) {
  const Redistribution move =
      redistribution(layout_of({6, 5}, {{"r", 2, Placement::shard(0, Split::given({4, 2}))}}),
                     layout_of({6, 5}, {{"r", 2, Placement::shard(1, Split::given({1, 4}))}}));
  EXPECT_EQ(given(move, 0, 2), (Items{4, 16}));
  EXPECT_EQ(given(move, 1, 2), (Items{2, 8}));
}

// Goal:   D4 of fields: where two axes change places, 10 of 24 elements move.
TEST(Redistributions, OfTwoAxesThatChangePlacesMoveOnlyWhatOthersHave) {
  const Placement rows = Placement::shard(0, Split::given({4, 2})),
                  columns = Placement::shard(1, Split::given({3, 1}));
  const Redistribution move = redistribution(layout_of({6, 4}, {{"a", 2, rows}, {"b", 2, columns}}),
                                             layout_of({6, 4}, {{"a", 2, columns}, {"b", 2, rows}}));
  EXPECT_EQ(given(move, 0, 4), (Items{12, 0, 0, 0}));
  EXPECT_EQ(given(move, 1, 4), (Items{0, 0, 4, 0}));
  EXPECT_EQ(given(move, 2, 4), (Items{0, 6, 0, 0}));
  EXPECT_EQ(given(move, 3, 4), (Items{0, 0, 0, 2}));
}

// Goal:   case X1: 8 rows of FSDP over tp are gathered as 0 to 7, and not in the order of the ranks.
TEST(Redistributions, GatherStridedShardsInTheOrderOfTheirRows) {
  for (const std::int64_t fsdp : {2, 4}) {
    const Layout strided =
        layout_of({8}, {{"dp_shard", fsdp, Placement::shard(0)}, {"tp", 2, Placement::shard(0)}});
    const Layout whole = over(2 * fsdp, Placement::replicate(), 8);
    const Arrays<std::int64_t> gathered =
        test::carried<std::int64_t>(redistribution(strided, whole), numbered(strided), -1);
    for (const Items& rows : gathered) EXPECT_EQ(rows, (Items{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

// Goal:   case T4: a tensor cut by either rule is restored, also where ranks have no head.
TEST(Redistributions, RestoreWhatBothRulesCut) {
  struct {
    std::int64_t items, ranks;
    Split split;
  } const cases[] = {{10, 3, Split::ceil()},        {10, 3, Split::balanced()},
                     {129, 4, Split::ceil()},       {129, 4, Split::balanced()},
                     {6 * 4, 4, Split::aligned(4)}, {8 * 4, 16, Split::aligned(4)}};
  for (const auto& c : cases) {
    const Layout cut = over(c.ranks, Placement::shard(0, c.split), c.items);
    const Layout whole = over(c.ranks, Placement::replicate(), c.items);
    expect_carries(cut, whole);
    expect_carries(whole, cut);
  }
}

// Goal:   case T10: weight and bias of a layer of 128 to 128, gathered from tp 4 and divided again.
TEST(Redistributions, GatherATensorParallelLayerAndDivideItAgain) {
  const Layout whole_weight = layout_of({128, 128}, {{"tp", 4, Placement::replicate()}});
  const Layout whole_bias = over(4, Placement::replicate(), 128);
  EXPECT_EQ(whole_weight.local_elements(0) + whole_bias.local_elements(0), 16512);
  for (const std::int32_t dim : {0, 1}) {
    const Layout weight = layout_of({128, 128}, {{"tp", 4, Placement::shard(dim)}});
    expect_carries(weight, whole_weight);
    expect_carries(whole_weight, weight);
  }
  expect_carries(over(4, Placement::shard(0), 128), whole_bias);
  expect_carries(whole_bias, over(4, Placement::shard(0), 128));
}

// Goal:   case T13: a replica becomes addends without a collective.
TEST(Redistributions, OfReplicasToAddendsDivide) {
  const Redistribution by_sum =
      redistribution(over(4, Placement::replicate()), over(4, Placement::partial(MUSTER_SUM)));
  EXPECT_EQ(by_sum.scale(), 0.25);
  EXPECT_TRUE(by_sum.reductions().empty());
  EXPECT_FALSE(by_sum.moves());
  EXPECT_EQ(redistribution(over(4, Placement::replicate()), over(4, Placement::partial(MUSTER_AVG))).scale(),
            1.0);
}

// Goal:   case T13: addends are reduced, and then divided.
TEST(Redistributions, OfAddendsReduceBeforeTheyMove) {
  const Redistribution to_shard =
      redistribution(over(4, Placement::partial(MUSTER_MAX)), over(4, Placement::shard(0)));
  EXPECT_EQ(to_shard.reductions(), (Reductions{{0, MUSTER_MAX}}));
  EXPECT_EQ(to_shard.scale(), 1.0);
  EXPECT_TRUE(to_shard.moves());
  EXPECT_EQ(givers(to_shard, 3), (std::vector<std::pair<std::int64_t, Split::Interval>>{{3, {6, 1}}}));
  EXPECT_FALSE(redistribution(over(4, Placement::partial()), over(4, Placement::replicate())).moves());
}

// Goal:   case T13: addends of 7 items over 4 ranks become shards by one reduction.
TEST(Redistributions, OfAddendsToShardsAreOneReduction) {
  const Redistribution rows = redistribution(over(4, Placement::partial()), over(4, Placement::shard(0)));
  ASSERT_TRUE(rows.is_part_reduction());
  const Redistribution::PartReduction reduction = rows.part_reduction(2).value();
  EXPECT_EQ(reduction.ranks, (Items{0, 1, 2, 3}));
  EXPECT_EQ(reduction.blocks, (std::vector<std::vector<Block>>{{{0, 2}}, {{2, 2}}, {{4, 2}}, {{6, 1}}}));
  // Columns are pieces, but for those that follow one another.
  const Redistribution columns = redistribution(layout_of({3, 4}, {{"tp", 3, Placement::partial()}}),
                                                layout_of({3, 4}, {{"tp", 3, Placement::shard(1)}}));
  EXPECT_EQ(columns.part_reduction(0)->blocks,
            (std::vector<std::vector<Block>>{{{0, 2}, {4, 2}, {8, 2}}, {{2, 2}, {6, 2}, {10, 2}}, {}}));
  const Placement around = Placement::shard(1, Split::given({0, 4, 0}));
  EXPECT_EQ(redistribution(layout_of({3, 4}, {{"tp", 3, Placement::partial()}}),
                           layout_of({3, 4}, {{"tp", 3, around}}))
                .part_reduction(0)
                ->blocks,
            (std::vector<std::vector<Block>>{{}, {{0, 12}}, {}}));
}

TEST(Redistributions, OfSeveralAxesOfAddendsAreOneReductionIfTheyReduceAlike) {
  const auto axes = [](const Placement& dp, const Placement& cp, const Placement& tp) {
    return layout_of({4, 6}, {{"dp", 2, dp}, {"cp", 2, cp}, {"tp", 2, tp}});
  };
  const Placement sum = Placement::partial(), rows = Placement::shard(0), columns = Placement::shard(1),
                  all = Placement::replicate();
  const Redistribution both = redistribution(axes(sum, columns, sum), axes(rows, columns, rows));
  ASSERT_TRUE(both.is_part_reduction());
  EXPECT_EQ(both.part_reduction(7)->ranks, (Items{2, 3, 6, 7}));
  EXPECT_EQ(both.part_reduction(7)->blocks,
            (std::vector<std::vector<Block>>{{{0, 3}}, {{6, 3}}, {{3, 3}}, {{9, 3}}}));
  EXPECT_TRUE(redistribution(axes(sum, columns, sum), axes(all, columns, all)).is_part_reduction());
  // An axis that stays partial is not reduced.
  const Redistribution one = redistribution(axes(sum, all, sum), axes(sum, all, rows));
  ASSERT_TRUE(one.is_part_reduction());
  EXPECT_EQ(one.part_reduction(7)->ranks, (Items{6, 7}));
  for (const Redistribution& none :
       {redistribution(axes(sum, all, Placement::partial(MUSTER_MAX)), axes(all, all, all)),
        redistribution(axes(sum, columns, all), axes(all, all, all)),  // and a gather
        redistribution(axes(all, columns, all), axes(all, rows, all)),
        redistribution(axes(sum, all, all), axes(all, all, sum))})
    EXPECT_FALSE(none.is_part_reduction());
}

TEST(Redistributions, KnowWhoHasTooManyBoxes) {
  const Placement twos = Placement::shard(0, Split::fused(Split::ceil(), Items(5, 2)));
  const Redistribution move = redistribution(over(3, twos, 10), over(3, Placement::shard(0), 10));
  // Rank 0 has 0, 2, 4, 6, 8, and rank 1 the others; they get 0-3 and 4-7.
  EXPECT_FALSE(move.crowded(9));
  EXPECT_EQ(move.crowded(8), 0);
  EXPECT_FALSE(redistribution(over(3, Placement::shard(0)), over(3, Placement::replicate())).crowded(6));
  EXPECT_EQ(redistribution(over(3, Placement::shard(0)), over(3, Placement::replicate())).crowded(5), 0);
}

// Goal:   case T13: shards do not become addends.
TEST(Redistributions, OfShardsToAddendsAreRefused) {
  EXPECT_EQ(refusal(over(4, Placement::shard(0)), over(4, Placement::partial())),
            "axis 0 (tp) is sharded and would become partial; make it replicate first");
}

TEST(Redistributions, ToAddendsOfAMaximumAreRefused) {
  EXPECT_EQ(refusal(over(4, Placement::replicate()), over(4, Placement::partial(MUSTER_MAX))),
            "axis 0 (tp) would become partial by max; only sum and avg are possible");
}

TEST(Redistributions, LeaveAddendsOfBothLayoutsAlone) {
  const Redistribution same =
      redistribution(over(4, Placement::partial(MUSTER_PROD)), over(4, Placement::partial(MUSTER_PROD)));
  EXPECT_TRUE(same.reductions().empty());
  EXPECT_EQ(same.scale(), 1.0);
  EXPECT_FALSE(same.moves());
  // By another operation they are reduced, and divided again.
  const Redistribution other =
      redistribution(over(4, Placement::partial(MUSTER_AVG)), over(4, Placement::partial(MUSTER_SUM)));
  EXPECT_EQ(other.reductions(), (Reductions{{0, MUSTER_AVG}}));
  EXPECT_EQ(other.scale(), 0.25);
}

TEST(Redistributions, ReduceTheInnermostAxisFirst) {
  const Layout from = layout_of({5}, {{"dp", 2, Placement::partial(MUSTER_SUM)},
                                      {"cp", 1, Placement::partial(MUSTER_SUM)},
                                      {"tp", 3, Placement::partial(MUSTER_MAX)}});
  const Layout to = layout_of({5}, {{"all", 6, Placement::replicate()}});
  EXPECT_EQ(redistribution(from, to).reductions(), (Reductions{{2, MUSTER_MAX}, {0, MUSTER_SUM}}));
}

// The sum over dp of the maxima over tp is not the maximum over tp of the sums over dp.
TEST(Redistributions, ReduceAnAxisThatWouldStayPartialIfTheResultDependsOnIt) {
  const auto axes = [](const Placement& dp, muster_redop tp) {
    return layout_of({5}, {{"dp", 2, dp}, {"tp", 3, Placement::partial(tp)}});
  };
  const Placement sum = Placement::partial(MUSTER_SUM);
  EXPECT_EQ(refusal(axes(sum, MUSTER_MAX), axes(Placement::replicate(), MUSTER_MAX)),
            "axis 1 (tp) would become partial by max; only sum and avg are possible");
  EXPECT_EQ(redistribution(axes(sum, MUSTER_AVG), axes(Placement::replicate(), MUSTER_AVG)).reductions(),
            (Reductions{{0, MUSTER_SUM}}));
  // The product of halves is not half the product.
  EXPECT_EQ(refusal(axes(Placement::replicate(), MUSTER_PROD), axes(sum, MUSTER_PROD)),
            "axis 1 (tp) would become partial by prod; only sum and avg are possible");
  EXPECT_TRUE(
      redistribution(axes(Placement::replicate(), MUSTER_MAX), axes(sum, MUSTER_MAX)).reductions().empty());
}

// Goal:   cases X2 and C1: what some ranks have saved, others read, however uneven the shards are.
TEST(Redistributions, ToOneRankAndBackKeepEachElementOfAStridedShard) {
  struct {
    std::int64_t items, tp, fsdp;
  } const cases[] = {{9, 2, 4}, {17, 2, 4}, {7, 2, 3}};
  for (const auto& c : cases) {
    const Layout strided = layout_of(
        {c.items, 2}, {{"dp_shard", c.fsdp, Placement::shard(0)}, {"tp", c.tp, Placement::shard(0)}});
    const Layout whole = layout_of({c.items, 2}, {});
    expect_carries(strided, whole, Ranks::kOther);
    expect_carries(whole, strided, Ranks::kOther);
    expect_carries(strided, layout_of({c.items, 2}, {{"tp", 5, Placement::shard(1)}}), Ranks::kOther);
  }
}

// Goal:   case C1: 10 rows of 4 ranks are read by 3.
TEST(Redistributions, ToAnotherNumberOfRanksReadEachSavedBoxOnce) {
  const Layout saved = over(4, Placement::shard(0), 10);
  const Layout wanted = over(3, Placement::shard(0), 10);
  const Redistribution move = redistribution(saved, wanted, Ranks::kOther);
  using Givers = std::vector<std::pair<std::int64_t, Split::Interval>>;
  EXPECT_EQ(givers(move, 0), (Givers{{0, {0, 3}}, {1, {3, 1}}}));
  EXPECT_EQ(givers(move, 1), (Givers{{1, {4, 2}}, {2, {6, 2}}}));
  EXPECT_EQ(givers(move, 2), (Givers{{2, {8, 1}}, {3, {9, 1}}}));
  const Overlap third = move.receives(1).value()[0];
  EXPECT_EQ(third.taken, (Index{1}));  // rows 1 and 2 of what rank 1 saved
  EXPECT_EQ(third.put, (Index{0}));
  EXPECT_TRUE(move.moves());
}

TEST(Redistributions, TakeFromTheRankItselfWhatItHas) {
  const Layout from =
      layout_of({4, 6}, {{"dp_replicate", 2, Placement::replicate()}, {"dp_shard", 2, Placement::shard(0)}});
  const Layout to = layout_of({4, 6}, {{"all", 4, Placement::replicate()}});
  const Redistribution move = redistribution(from, to);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const std::vector<Overlap> got = move.receives(rank).value();
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(std::count_if(got.begin(), got.end(), [rank](const Overlap& o) { return o.from == rank; }), 1);
  }
}

// 8 ranks hold 2 shards 4 times each. Each shard goes to the 4 ranks that lack it, one from each replica.
TEST(Redistributions, ShareTheWorkAmongReplicas) {
  const Layout from =
      layout_of({8}, {{"dp_replicate", 4, Placement::replicate()}, {"dp_shard", 2, Placement::shard(0)}});
  const Redistribution move = redistribution(from, layout_of({8}, {{"all", 8, Placement::replicate()}}));
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const std::vector<Overlap> given = move.sends(rank).value();
    EXPECT_EQ(given.size(), 2u) << rank;  // to itself and to one other rank
  }
}

TEST(Redistributions, ListBoxesByTheOtherRankAndThenInRowMajorOrder) {
  const Split fused = Split::fused(Split::ceil(), {2, 2});
  const Layout from =
      layout_of({4, 4}, {{"a", 2, Placement::shard(0, fused)}, {"b", 2, Placement::shard(1, fused)}});
  const Layout to = layout_of({4, 4}, {{"all", 4, Placement::replicate()}});
  const Redistribution move = redistribution(from, to);
  const std::vector<Overlap> got = move.receives(3).value();
  ASSERT_EQ(got.size(), 16u);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end(), [](const Overlap& x, const Overlap& y) {
    return std::pair(x.from, x.box.offset) < std::pair(y.from, y.box.offset);
  }));
  EXPECT_EQ(got[1], (Overlap{0, 3, Box{2, {0, 2}, {1, 1}}, {0, 1}, {0, 2}}));
}

TEST(Redistributions, MoveNothingWhereAllStays) {
  const Layout from = layout_of({9}, {{"dp_shard", 4, Placement::shard(0)}, {"tp", 2, Placement::shard(0)}});
  EXPECT_FALSE(redistribution(from, from).moves());
  // Another shape of emptiness is none.
  const Layout rows = layout_of({0, 5}, {{"tp", 2, Placement::shard(0)}});
  EXPECT_FALSE(redistribution(rows, layout_of({0, 5}, {{"tp", 2, Placement::shard(1)}})).moves());
  EXPECT_FALSE(redistribution(rows, rows, Ranks::kOther).moves());
}

TEST(Redistributions, OfOtherShapesOrRanksAreRefused) {
  EXPECT_EQ(refusal(layout_of({7, 9}, {}), layout_of({9, 7}, {})),
            "one layout is of a tensor of shape [7, 9], the other of one of shape [9, 7]");
  EXPECT_EQ(refusal(layout_of({7, 1}, {}), layout_of({7}, {})),
            "one layout is of a tensor of shape [7, 1], the other of one of shape [7]");
  EXPECT_EQ(refusal(over(4, Placement::shard(0)), over(3, Placement::shard(0))),
            "one layout has 4 ranks, the other 3");
}

TEST(Redistributions, RefuseAListThatIsTooLong) {
  const Split ones = Split::fused(Split::ceil(), Items(150, 2));
  const Layout rows =
      layout_of({300, 300}, {{"a", 2, Placement::shard(0, ones)}, {"b", 2, Placement::replicate()}});
  const Layout columns =
      layout_of({300, 300}, {{"a", 2, Placement::replicate()}, {"b", 2, Placement::shard(1, ones)}});
  const Layout both =
      layout_of({300, 300}, {{"a", 2, Placement::shard(0, ones)}, {"b", 2, Placement::shard(1, ones)}});
  EXPECT_EQ(redistribution(rows, columns).receives(0)->size(), 150u * 150u * 2);
  const Result<std::vector<Overlap>> all =
      redistribution(both, layout_of({300, 300}, {{"", 4, Placement::replicate()}})).receives(0);
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code(), Code::kNoResource);
  EXPECT_EQ(all.error().message(), "rank 2 gives rank 0 too many boxes: a list has at most 65536");
}

}  // namespace
}  // namespace muster
