#include "api/base/shard/runs.hpp"

#include "tests/api/base/layout/drawn_layout.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

using test::Items;
using test::SaidAxis;
using test::SaidLayout;
using Runs = std::vector<ShardedParameter::Run>;

Layout layout_of(const Items& shape, std::vector<Layout::Axis> axes,
                 Layout::Order order = Layout::Order::kInnermostFirst) {
  Result<Layout> layout = Layout::make(shape, std::move(axes), order);
  EXPECT_TRUE(layout.has_value()) << layout.error().text();
  return layout.value();
}

ShardedParameter made(const Layout& layout, std::size_t axis, std::int64_t rank) {
  Result<ShardedParameter> parameter = ShardedParameter::make(layout, axis, rank);
  EXPECT_TRUE(parameter.has_value()) << parameter.error().text();
  return parameter.value();
}

std::string refusal(const Layout& layout, std::size_t axis, std::int64_t rank) {
  const Result<ShardedParameter> parameter = ShardedParameter::make(layout, axis, rank);
  EXPECT_FALSE(parameter.has_value());
  if (parameter.has_value()) return "";
  EXPECT_EQ(parameter.error().code(), Code::kBadArgument);
  return parameter.error().message();
}

Items first_dims(const Index& shape, std::size_t dims) {
  return {shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dims)};
}

// dp_shard outermost and tp inside it, as FSDP2 with tensor parallelism has them: rank d·tp + t.
Layout strided(std::int64_t rows, std::int64_t tp, std::int64_t fsdp) {
  return layout_of({rows}, {{"dp_shard", fsdp, Placement::shard(0)}, {"tp", tp, Placement::shard(0)}});
}

// Goal:   case F8: rows of 3 elements.
TEST(ShardedParameters, HaveRowsByCeil) {
  const Layout five = layout_of({5, 3}, {{"dp_shard", 4, Placement::shard(0)}});
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const ShardedParameter parameter = made(five, 0, rank);
    EXPECT_EQ(parameter.runs(), (std::vector<Runs>{{{0, 6}}, {{6, 6}}, {{12, 3}}, {}}));
    EXPECT_EQ(parameter.whole_elements(), 15);
    EXPECT_EQ(first_dims(parameter.shard_shape(), 2), (Items{rank < 2 ? 2 : rank == 2 ? 1 : 0, 3}));
  }
  const Layout one = layout_of({1, 3}, {{"dp_shard", 2, Placement::shard(0)}});
  EXPECT_EQ(made(one, 0, 1).runs(), (std::vector<Runs>{{{0, 3}}, {}}));
  EXPECT_EQ(made(one, 0, 1).shard_elements(), 0);
}

// Goal:   case F8: another dim must divide evenly, and the sentence is the same on all ranks.
TEST(ShardedParameters, RefuseToDivideAnotherDimUnevenly) {
  const Layout layout = layout_of({8, 6}, {{"dp_shard", 4, Placement::shard(1)}});
  for (std::int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(
        refusal(layout, 0, rank),
        "4 ranks do not divide dim 1 of the tensor [8, 6] evenly; a unit may shard unevenly in dim 0 alone");
}

TEST(ShardedParameters, HaveARunInEachRowIfTheyDivideColumns) {
  const Layout layout = layout_of({2, 6}, {{"dp_shard", 3, Placement::shard(1)}});
  EXPECT_EQ(made(layout, 0, 0).runs(),
            (std::vector<Runs>{{{0, 2}, {6, 2}}, {{2, 2}, {8, 2}}, {{4, 2}, {10, 2}}}));
}

TEST(ShardedParameters, OfThreeDimsHaveRunsOfWholeRows) {
  const Layout rows = layout_of({4, 2, 3}, {{"dp_shard", 2, Placement::shard(0)}});
  EXPECT_EQ(made(rows, 0, 0).runs(), (std::vector<Runs>{{{0, 12}}, {{12, 12}}}));
  const Layout middle = layout_of({2, 4, 3}, {{"dp_shard", 2, Placement::shard(1)}});
  EXPECT_EQ(made(middle, 0, 0).runs(), (std::vector<Runs>{{{0, 6}, {12, 6}}, {{6, 6}, {18, 6}}}));
  const Layout last = layout_of({1, 2, 4}, {{"dp_shard", 2, Placement::shard(2)}});
  EXPECT_EQ(made(last, 0, 0).runs(), (std::vector<Runs>{{{0, 2}, {4, 2}}, {{2, 2}, {6, 2}}}));
}

// Goal:   case X1: the rows that all members have of tp part t are that part.
TEST(ShardedParameters, AreWholeWithinTheirTpPart) {
  for (const std::int64_t fsdp : {2, 4}) {
    const Layout layout = strided(8, 2, fsdp);
    const std::int64_t each = 4 / fsdp;
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      const ShardedParameter parameter = made(layout, 0, rank);
      EXPECT_EQ(first_dims(parameter.whole_shape(), 1), (Items{4}));
      EXPECT_EQ(parameter.whole().intervals(rank, 0).front(), (Split::Interval{rank % 2 * 4, 4}));
      ASSERT_EQ(parameter.runs().size(), static_cast<std::size_t>(fsdp));
      for (std::int64_t member = 0; member < fsdp; ++member)
        EXPECT_EQ(parameter.runs()[static_cast<std::size_t>(member)], (Runs{{member * each, each}}));
      EXPECT_TRUE(parameter.has_other_shards());
    }
  }
}

// Goal:   case X2: 9 rows over tp 2 and dp_shard 4. The parts have 5 and 4 rows, so their members have 2 or
//         1.
TEST(ShardedParameters, OfUnevenTpPartsHaveRunsOfTheirOwn) {
  const Layout layout = strided(9, 2, 4);
  EXPECT_EQ(made(layout, 0, 6).runs(), (std::vector<Runs>{{{0, 2}}, {{2, 2}}, {{4, 1}}, {}}));
  EXPECT_EQ(made(layout, 0, 6).whole_elements(), 5);
  EXPECT_EQ(made(layout, 0, 1).runs(), (std::vector<Runs>{{{0, 1}}, {{1, 1}}, {{2, 1}}, {{3, 1}}}));
  EXPECT_EQ(made(layout, 0, 1).whole_elements(), 4);
}

TEST(ShardedParameters, OfMoreUnevenPartsHaveRunsOfTheirOwn) {
  EXPECT_EQ(made(strided(7, 2, 2), 0, 1).runs(), (std::vector<Runs>{{{0, 2}}, {{2, 1}}}));
  EXPECT_EQ(made(strided(10, 4, 2), 0, 3).runs(), (std::vector<Runs>{{{0, 1}}, {}}));
  EXPECT_EQ(made(strided(11, 2, 3), 0, 1).runs(), (std::vector<Runs>{{{0, 2}}, {{2, 2}}, {{4, 1}}}));
}

// Goal:   case X4: row-parallel [8, 6] over tp 2 and dp_shard 4: rank (d, t) has 2 rows of its 3 columns.
TEST(ShardedParameters, OfColumnsOfTpAreRowsOfTheirPart) {
  const Layout layout =
      layout_of({8, 6}, {{"dp_shard", 4, Placement::shard(0)}, {"tp", 2, Placement::shard(1)}});
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const ShardedParameter parameter = made(layout, 0, rank);
    EXPECT_EQ(first_dims(parameter.whole_shape(), 2), (Items{8, 3}));
    EXPECT_EQ(first_dims(parameter.shard_shape(), 2), (Items{2, 3}));
    EXPECT_EQ(parameter.runs(), (std::vector<Runs>{{{0, 6}}, {{6, 6}}, {{12, 6}}, {{18, 6}}}));
  }
}

// Goal:   case T11: q, k and v of 8, 4 and 4 rows, of which tp 2 has each a half, and dp_shard 2 a half of
//         that.
TEST(ShardedParameters, OfFusedTensorsAreRowsOfTheirPart) {
  const Split fused = Split::fused(Split::balanced(), {8, 4, 4});
  const Layout layout =
      layout_of({16}, {{"dp_shard", 2, Placement::shard(0)}, {"tp", 2, Placement::shard(0, fused)}});
  EXPECT_EQ(made(layout, 0, 1).runs(), (std::vector<Runs>{{{0, 4}}, {{4, 4}}}));
  const Layout both = layout_of({16}, {{"dp_shard", 2, Placement::shard(0, fused)}});
  EXPECT_EQ(made(both, 0, 0).runs(),
            (std::vector<Runs>{{{0, 4}, {8, 2}, {12, 2}}, {{4, 4}, {10, 2}, {14, 2}}}));
}

TEST(ShardedParameters, RefuseAnAxisThatIsNoneOrDoesNotShard) {
  const Layout layout = layout_of({8}, {{"rep", 2, Placement::replicate()}, {"dp", 2, Placement::shard(0)}});
  EXPECT_EQ(refusal(layout, 0, 1),
            "axis 0 (rep) does not shard the tensor, but its unit is sharded along it");
  EXPECT_EQ(refusal(layout, 2, 1), "the unit is sharded along axis 2, but the layout has 2 axes");
  EXPECT_TRUE(ShardedParameter::make(layout, 1, 1).has_value());
}

TEST(ShardedParameters, RefuseToBeCutBeforeAnotherAxisCuts) {
  const Layout layout = layout_of({8}, {{"dp_shard", 2, Placement::shard(0)}, {"tp", 2, Placement::shard(0)}},
                                  Layout::Order::kOutermostFirst);
  EXPECT_EQ(
      refusal(layout, 0, 0),
      "axis 0 (dp_shard) cuts dim 0 before another axis does, so its shards do not make up what a rank has "
      "when it is whole; let it cut last (MUSTER_CUT_INNERMOST_FIRST, and this axis outermost)");
  EXPECT_TRUE(ShardedParameter::make(layout, 1, 0).has_value());
}

TEST(ShardedParameters, RefuseMoreRunsThanAnOperationHas) {
  const Items shape{static_cast<std::int64_t>(ShardedParameter::kRunsMax) / 2, 4};
  const Layout fits = layout_of(shape, {{"dp_shard", 2, Placement::shard(1)}});
  EXPECT_TRUE(ShardedParameter::make(fits, 0, 0).has_value());
  const Layout layout = layout_of(shape, {{"dp_shard", 4, Placement::shard(1)}});
  const Result<ShardedParameter> parameter = ShardedParameter::make(layout, 0, 0);
  ASSERT_FALSE(parameter.has_value());
  EXPECT_EQ(parameter.error().code(), Code::kNoResource);
  EXPECT_EQ(
      parameter.error().message(),
      "the shards of the tensor [2048, 4] lie in more than 4096 pieces, the most of one operation: shard "
      "dim 0");
}

// Goal:   a refusal costs no more than what is not refused: 2^40 rows are not listed.
TEST(ShardedParameters, RefuseATensorOfManyRowsAtOnce) {
  const Layout layout = layout_of({1 << 20, 1 << 20, 4}, {{"dp_shard", 4, Placement::shard(2)}});
  const Result<ShardedParameter> parameter = ShardedParameter::make(layout, 0, 0);
  ASSERT_FALSE(parameter.has_value());
  EXPECT_EQ(parameter.error().code(), Code::kNoResource);
}

TEST(ShardedParameters, ThatNobodyShardsAreOneRun) {
  const Layout layout = layout_of({4, 3}, {{"dp_shard", 2, Placement::replicate()}});
  const ShardedParameter parameter = ShardedParameter::make_whole(layout, 1);
  EXPECT_EQ(parameter.runs(), (std::vector<Runs>{{{0, 12}}}));
  EXPECT_EQ(parameter.shard_elements(), parameter.whole_elements());
  EXPECT_FALSE(parameter.has_other_shards());
  const Layout tp = layout_of({4, 3}, {{"tp", 2, Placement::shard(0)}});
  EXPECT_TRUE(ShardedParameter::make_whole(tp, 1).has_other_shards());
}

// The places in a whole array that runs name, in their order.
Items places(const Runs& runs) {
  Items found;
  for (const ShardedParameter::Run& run : runs)
    for (std::int64_t i = 0; i < run.count; ++i) found.push_back(run.offset + i);
  return found;
}

// The place of each element of `shard` in `whole`; -1 if it has none.
Items looked_up(const Items& shard, const Items& whole) {
  Items found;
  for (const std::int64_t element : shard) {
    const auto at = std::find(whole.begin(), whole.end(), element);
    found.push_back(at == whole.end() ? -1 : at - whole.begin());
  }
  return found;
}

// For each member of an axis: the places of the member's elements in the whole array of `rank`.
std::vector<Items> replayed(const SaidLayout& said, std::size_t axis, std::int64_t rank) {
  SaidLayout whole = said;
  whole.axes[axis].kind = Placement::Kind::kReplicate;
  std::int64_t stride = 1;
  for (std::size_t inner = axis + 1; inner < said.axes.size(); ++inner) stride *= said.axes[inner].ranks;
  const std::int64_t first = rank - said.coordinates(rank)[axis] * stride;
  std::vector<Items> members;
  for (std::int64_t member = 0; member < said.axes[axis].ranks; ++member)
    members.push_back(looked_up(said.array(first + member * stride), whole.array(rank)));
  return members;
}

bool divides_evenly(const SaidLayout& said, std::size_t axis) {
  std::set<std::size_t> lengths;
  for (std::int64_t rank = 0; rank < said.ranks(); ++rank)
    lengths.insert(said.items(rank, said.axes[axis].dim).size());
  return lengths.size() == 1;
}

// Another axis cuts the same dim after this one, so members need not have what the whole has. One of one rank
// may do so, but not with given lengths that fit no whole.
bool cuts_before_another(const SaidLayout& said, std::size_t axis) {
  if (said.axes[axis].ranks == 1) return false;
  SaidLayout whole = said;
  whole.axes[axis].kind = Placement::Kind::kReplicate;
  if (!whole.make().has_value()) return true;
  for (std::size_t other = 0; other < said.axes.size(); ++other) {
    const bool later = said.order == Layout::Order::kOutermostFirst ? other > axis : other < axis;
    if (later && said.axes[other].ranks > 1 && said.axes[other].kind == Placement::Kind::kShard &&
        said.axes[other].dim == said.axes[axis].dim)
      return true;
  }
  return false;
}

// Goal:   each element of a whole array belongs to one member, in the order of that member's array.
// Method: compare the runs of random layouts with a search for each element.
TEST(ShardedParameterProperty, HasEachElementInTheRunsOfOneMember) {
  const std::uint64_t last = test::property_cases(20'000);
  std::uint64_t compared = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    test::Random random(seed);
    const Items mesh = test::drawn_mesh(random, 12);
    if (mesh.empty()) continue;
    const SaidLayout said =
        test::drawn_layout(random, test::drawn_shape(random), mesh, test::Partials::kSome);
    const std::size_t axis = random.below(mesh.size());
    const std::int64_t rank = test::drawn_number(random, 0, said.ranks() - 1);
    SCOPED_TRACE(fmt::format("seed {}: {}, axis {}, rank {}", seed, said.text(), axis, rank));
    const Result<ShardedParameter> parameter = ShardedParameter::make(said.make().value(), axis, rank);
    if (said.axes[axis].kind != Placement::Kind::kShard) {
      ASSERT_FALSE(parameter.has_value());
      continue;
    }
    if (cuts_before_another(said, axis) || (said.axes[axis].dim != 0 && !divides_evenly(said, axis))) {
      ASSERT_FALSE(parameter.has_value());
      EXPECT_EQ(parameter.error().code(), Code::kBadArgument);
      ++refused;
      continue;
    }
    ASSERT_TRUE(parameter.has_value()) << parameter.error().text();
    const std::vector<Items> members = replayed(said, axis, rank);
    ++compared;
    std::multiset<std::int64_t> all;
    ASSERT_EQ(parameter->runs().size(), members.size());
    for (std::size_t member = 0; member < members.size(); ++member) {
      const Runs& runs = parameter->runs()[member];
      ASSERT_EQ(places(runs), members[member]) << "member " << member;
      for (std::size_t i = 0; i < runs.size(); ++i)
        EXPECT_TRUE(i == 0 || runs[i - 1].offset + runs[i - 1].count != runs[i].offset);
      all.insert(members[member].begin(), members[member].end());
    }
    ASSERT_EQ(all.size(), static_cast<std::size_t>(parameter->whole_elements()));
    ASSERT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), all.size());
  }
  EXPECT_GT(compared, last / 4);
  EXPECT_GT(refused, last / 20);
}

}  // namespace
}  // namespace muster::shard
