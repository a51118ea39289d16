#include "api/base/layout/redistribution.hpp"

#include "tests/api/base/layout/drawn_layout.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {
namespace {

using Overlap = Redistribution::Overlap;
using Ranks = Redistribution::Ranks;

struct Case {
  SaidLayout from;
  SaidLayout to;
  Ranks ranks = Ranks::kSame;
  std::vector<Items> from_arrays{};  // of each rank, by element
  std::vector<Items> to_arrays{};

  explicit Case(std::uint64_t seed) {
    Random random(seed);
    const Items shape = drawn_shape(random);
    const Items mesh = drawn_mesh(random, 8);
    Items other = mesh;
    const std::uint64_t how = random.below(4);
    if (how == 0) {  // the same ranks as another mesh
      std::reverse(other.begin(), other.end());
      if (random.below(2) == 0 && other.size() > 1) {
        other[0] *= other[1];
        other.erase(other.begin() + 1);
      }
    } else if (how == 1) {
      other = drawn_mesh(random, 8);
      ranks = Ranks::kOther;
    }
    from = drawn_layout(random, shape, mesh, Partials::kSome);
    to = drawn_layout(random, shape, other, Partials::kSome);
    for (std::int64_t rank = 0; rank < from.ranks(); ++rank) from_arrays.push_back(from.array(rank));
    for (std::int64_t rank = 0; rank < to.ranks(); ++rank) to_arrays.push_back(to.array(rank));
  }

  std::string text() const {
    return fmt::format("{} -> {}{}", from.text(), to.text(), ranks == Ranks::kOther ? ", other ranks" : "");
  }
};

double reduced(muster_redop redop, const std::vector<double>& values) {
  double result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i)
    result = redop == MUSTER_MAX    ? std::max(result, values[i])
             : redop == MUSTER_MIN  ? std::min(result, values[i])
             : redop == MUSTER_PROD ? result * values[i]
                                    : result + values[i];
  return redop == MUSTER_AVG ? result / static_cast<double>(values.size()) : result;
}

std::int64_t stride_of(const SaidLayout& said, std::size_t axis) {
  std::int64_t stride = 1;
  for (std::size_t inner = axis + 1; inner < said.axes.size(); ++inner) stride *= said.axes[inner].ranks;
  return stride;
}

// The ranks of a line along an axis that begins at `rank`.
Items line(const SaidLayout& said, std::int64_t rank, std::size_t axis) {
  Items ranks;
  for (std::int64_t i = 0; i < said.axes[axis].ranks; ++i) ranks.push_back(rank + i * stride_of(said, axis));
  return ranks;
}

// The element that the ranks around `rank` stand for: what is partial is reduced, the innermost axis first.
// `value(rank)` is a rank's addend.
template<class Value>
double whole(const SaidLayout& said, std::int64_t rank, const Value& value) {
  Items ranks{rank};
  std::vector<std::size_t> axes;  // outermost first
  for (std::size_t axis = 0; axis < said.axes.size(); ++axis) {
    if (said.axes[axis].kind != Placement::Kind::kPartial) continue;
    axes.push_back(axis);
    Items more;
    for (std::int64_t r : ranks) {
      r -= said.coordinates(r)[axis] * stride_of(said, axis);
      for (const std::int64_t other : line(said, r, axis)) more.push_back(other);
    }
    ranks = std::move(more);
  }
  std::vector<double> values;
  for (const std::int64_t r : ranks) values.push_back(value(r));
  for (; !axes.empty(); axes.pop_back()) {
    const SaidAxis& axis = said.axes[axes.back()];
    std::vector<double> fewer;
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(axis.ranks)) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(i);
      fewer.push_back(reduced(axis.redop, {first, first + axis.ranks}));
    }
    values = std::move(fewer);
  }
  return values[0];
}

// Addends: ranks that differ along partial axes have different ones.
Arrays<double> addends(const Case& c) {
  Arrays<double> arrays;
  for (std::int64_t rank = 0; rank < c.from.ranks(); ++rank) {
    std::uint64_t which = 17;
    const Items at = c.from.coordinates(rank);
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (c.from.axes[axis].kind == Placement::Kind::kPartial)
        which = which * 31 + static_cast<std::uint64_t>(at[axis]) + 1;
    std::vector<double> array;
    for (const std::int64_t element : c.from_arrays[static_cast<std::size_t>(rank)])
      array.push_back(
          1.0 +
          static_cast<double>(Random(which * 1000 + static_cast<std::uint64_t>(element)).below(997)) / 64);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

void reduce_along(const SaidLayout& said, const Redistribution::AxisReduction& reduction,
                  Arrays<double>& arrays) {
  for (std::int64_t rank = 0; rank < said.ranks(); ++rank) {
    if (said.coordinates(rank)[reduction.axis] != 0) continue;
    const Items ranks = line(said, rank, reduction.axis);
    for (std::size_t place = 0; place < arrays[static_cast<std::size_t>(rank)].size(); ++place) {
      std::vector<double> values;
      for (const std::int64_t r : ranks) values.push_back(arrays[static_cast<std::size_t>(r)][place]);
      for (const std::int64_t r : ranks)
        arrays[static_cast<std::size_t>(r)][place] = reduced(reduction.redop, values);
    }
  }
}

// The place of an element in the array of a rank.
std::optional<std::size_t> find(const std::vector<Items>& arrays, std::int64_t rank, std::int64_t element) {
  const Items& array = arrays[static_cast<std::size_t>(rank)];
  const auto at = std::find(array.begin(), array.end(), element);
  if (at == array.end()) return std::nullopt;
  return static_cast<std::size_t>(at - array.begin());
}

// Goal: after all three steps the ranks stand for the tensor for which they stood before.
void expect_values(const Case& c, const Redistribution& move) {
  Arrays<double> arrays = addends(c);
  std::vector<double> tensor(static_cast<std::size_t>(c.from.elements()));
  for (std::int64_t rank = 0; rank < c.from.ranks(); ++rank)
    for (const std::int64_t element : c.from_arrays[static_cast<std::size_t>(rank)])
      tensor[static_cast<std::size_t>(element)] = whole(c.from, rank, [&](std::int64_t r) {
        return arrays[static_cast<std::size_t>(r)][*find(c.from_arrays, r, element)];
      });
  for (const Redistribution::AxisReduction& reduction : move.reductions())
    reduce_along(c.from, reduction, arrays);
  Arrays<double> after = carried(move, arrays, std::nan(""));
  for (std::vector<double>& array : after)
    for (double& value : array) value *= move.scale();
  for (std::int64_t rank = 0; rank < c.to.ranks(); ++rank)
    for (const std::int64_t element : c.to_arrays[static_cast<std::size_t>(rank)]) {
      const double found = whole(c.to, rank, [&](std::int64_t r) {
        return after[static_cast<std::size_t>(r)][*find(c.to_arrays, r, element)];
      });
      const double expected = tensor[static_cast<std::size_t>(element)];
      ASSERT_NEAR(found, expected, 1e-9 * expected) << "rank " << rank << ", element " << element;
    }
}

// Each element comes once, from a rank that has it: from the receiver if it has it.
void expect_givers(const Case& c, const Redistribution& move, std::int64_t rank,
                   const std::vector<Overlap>& overlaps) {
  std::multiset<std::int64_t> got;
  for (const Overlap& overlap : overlaps) {
    ASSERT_EQ(overlap.to, rank);
    for_each_index(overlap.box.length, overlap.box.dims, [&](const Index& index) {
      const Layout& from = move.from();
      const auto element =
          static_cast<std::int64_t>(place_of(sum(overlap.box.offset, index), from.shape(), from.dims()));
      got.insert(element);
      EXPECT_EQ(find(c.from_arrays, overlap.from, element),
                place_of(sum(overlap.taken, index), from.local_shape(overlap.from), from.dims()));
      EXPECT_EQ(find(c.to_arrays, rank, element),
                place_of(sum(overlap.put, index), move.to().local_shape(rank), from.dims()));
      const bool has_it = c.ranks == Ranks::kSame && find(c.from_arrays, rank, element);
      EXPECT_TRUE(!has_it || overlap.from == rank) << "element " << element << " from " << overlap.from;
    });
  }
  const Items& array = c.to_arrays[static_cast<std::size_t>(rank)];
  ASSERT_EQ(got, std::multiset<std::int64_t>(array.begin(), array.end()));
}

auto order_of(const Overlap& o, std::int64_t other) {
  return std::tuple(other, o.box.offset, o.box.length);
}

using Sorted = std::vector<std::tuple<std::int64_t, std::int64_t, Index, Index, Index, Index>>;

Sorted sorted(const std::vector<Overlap>& overlaps) {
  Sorted found;
  for (const Overlap& o : overlaps)
    found.push_back({o.from, o.to, o.box.offset, o.box.length, o.taken, o.put});
  std::sort(found.begin(), found.end());
  return found;
}

// Ranks that have the same after the reductions serve equally many others, but for one.
void expect_fair(const Case& c, const Redistribution& move, const std::vector<Overlap>& sent) {
  std::map<std::pair<Items, Items>, std::map<std::int64_t, std::set<std::int64_t>>> served;
  for (std::int64_t rank = 0; rank < c.from.ranks(); ++rank) {
    const Items& array = c.from_arrays[static_cast<std::size_t>(rank)];
    if (array.empty()) continue;
    Items addend = c.from.coordinates(rank);
    for (std::size_t axis = 0; axis < addend.size(); ++axis) {
      const bool partial = c.from.axes[axis].kind == Placement::Kind::kPartial;
      const auto& reductions = move.reductions();
      const bool gone =
          std::any_of(reductions.begin(), reductions.end(),
                      [axis](const Redistribution::AxisReduction& r) { return r.axis == axis; });
      if (!partial || gone) addend[axis] = 0;
    }
    std::set<std::int64_t>& receivers = served[{array, addend}][rank];
    for (const Overlap& overlap : sent)
      if (overlap.from == rank && (overlap.to != rank || c.ranks == Ranks::kOther))
        receivers.insert(overlap.to);
  }
  for (const auto& [what, by_rank] : served) {
    std::size_t most = 0;
    std::size_t least = by_rank.begin()->second.size();
    for (const auto& [rank, receivers] : by_rank) {
      most = std::max(most, receivers.size());
      least = std::min(least, receivers.size());
    }
    EXPECT_LE(most - least, 1u);
  }
}

void expect_lists(const Case& c, const Redistribution& move) {
  std::vector<Overlap> sent;
  std::vector<Overlap> received;
  for (std::int64_t rank = 0; rank < c.from.ranks(); ++rank) {
    const std::vector<Overlap> list = move.sends(rank).value();
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end(), [](const Overlap& a, const Overlap& b) {
      return order_of(a, a.to) < order_of(b, b.to);
    }));
    for (const Overlap& overlap : list) EXPECT_EQ(overlap.from, rank);
    sent.insert(sent.end(), list.begin(), list.end());
  }
  for (std::int64_t rank = 0; rank < c.to.ranks(); ++rank) {
    const std::vector<Overlap> list = move.receives(rank).value();
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end(), [](const Overlap& a, const Overlap& b) {
      return order_of(a, a.from) < order_of(b, b.from);
    }));
    expect_givers(c, move, rank, list);
    received.insert(received.end(), list.begin(), list.end());
  }
  EXPECT_EQ(sorted(sent), sorted(received));
  expect_fair(c, move, sent);
  EXPECT_EQ(move.moves(), c.ranks == Ranks::kSame ? c.from_arrays != c.to_arrays : c.from.elements() > 0);
}

// Goal: a redistribution that is one reduction is recognised, and each rank keeps its part of the new layout.
void expect_part_reduction(const Case& c, const Redistribution& move, std::uint64_t& found) {
  bool is_one = c.ranks == Ranks::kSame && !move.reductions().empty() && move.scale() == 1;
  for (const Redistribution::AxisReduction& reduction : move.reductions())
    is_one = is_one && reduction.redop == move.reductions()[0].redop;
  for (std::int64_t rank = 0; is_one && rank < c.to.ranks(); ++rank)
    for (const std::int64_t element : c.to_arrays[static_cast<std::size_t>(rank)])
      is_one = is_one && find(c.from_arrays, rank, element).has_value();
  ASSERT_EQ(move.is_part_reduction(), is_one);
  if (!is_one) return;
  ++found;
  for (std::int64_t rank = 0; rank < c.to.ranks(); ++rank) {
    const Redistribution::PartReduction reduction = move.part_reduction(rank).value();
    std::int64_t peers = 1;
    for (const Redistribution::AxisReduction& each : move.reductions()) peers *= c.from.axes[each.axis].ranks;
    ASSERT_EQ(static_cast<std::int64_t>(reduction.ranks.size()), peers);
    ASSERT_TRUE(std::ranges::is_sorted(reduction.ranks));
    ASSERT_EQ(std::ranges::count(reduction.ranks, rank), 1);
    for (std::size_t i = 0; i < reduction.ranks.size(); ++i) {
      const Items& whole = c.from_arrays[static_cast<std::size_t>(reduction.ranks[i])];
      ASSERT_EQ(whole, c.from_arrays[static_cast<std::size_t>(rank)]) << "they reduce one array";
      Items kept;
      for (const Block& block : reduction.blocks[i])
        for (std::uint64_t at = block.offset; at < block.offset + block.count; ++at)
          kept.push_back(whole.at(at));
      ASSERT_EQ(kept, c.to_arrays[static_cast<std::size_t>(reduction.ranks[i])]);
    }
  }
}

// Goal: a redistribution is crowded exactly if some rank has more transfers than the limit.
void expect_crowded(const Redistribution& move) {
  std::uint64_t most = 0;
  for (std::int64_t rank = 0; rank < std::max(move.from().ranks(), move.to().ranks()); ++rank)
    most = std::max<std::uint64_t>(most, move.sends(rank)->size() + move.receives(rank)->size());
  EXPECT_FALSE(move.crowded(most));
  if (most > 0) {
    EXPECT_TRUE(move.crowded(most - 1));
  }
}

// Whether an axis of shards would become one of addends.
bool shards_become_partial(const Case& c) {
  if (c.ranks == Ranks::kOther) return false;
  for (std::size_t to = 0; to < c.to.axes.size(); ++to)
    for (std::size_t from = 0; from < c.from.axes.size(); ++from)
      if (c.to.axes[to].kind == Placement::Kind::kPartial &&
          c.from.axes[from].kind == Placement::Kind::kShard && c.to.axes[to].ranks > 1 &&
          c.to.axes[to].ranks == c.from.axes[from].ranks && stride_of(c.to, to) == stride_of(c.from, from))
        return true;
  return false;
}

bool has_odd_partial(const SaidLayout& said) {
  return std::any_of(said.axes.begin(), said.axes.end(), [](const SaidAxis& axis) {
    return axis.ranks > 1 && axis.kind == Placement::Kind::kPartial && axis.redop != MUSTER_SUM &&
           axis.redop != MUSTER_AVG;
  });
}

// Goal:   any redistribution leaves the tensor as it was, and both ends of each box agree on it.
// Method: carry out the three steps on arrays of numbers, and compare lists and values with replayed layouts.
TEST(RedistributionProperty, CarriesEachElementOnceFromARankThatHasIt) {
  const std::uint64_t last = property_cases(100'000);
  std::uint64_t carried_out = 0;
  std::uint64_t reduced_first = 0;
  std::uint64_t scaled = 0;
  std::uint64_t one_reduction = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.text()));
    const Result<Layout> from = c.from.make();
    const Result<Layout> to = c.to.make();
    ASSERT_TRUE(from.has_value() && to.has_value());
    const Result<Redistribution> move = Redistribution::make(*from, *to, c.ranks);
    if (shards_become_partial(c)) {
      ASSERT_FALSE(move.has_value());
      continue;
    }
    if (!move.has_value()) {
      ASSERT_TRUE(has_odd_partial(c.to)) << move.error().text();
      continue;
    }
    ++carried_out;
    reduced_first += move->reductions().empty() ? 0 : 1;
    scaled += move->scale() == 1.0 ? 0 : 1;
    expect_lists(c, *move);
    expect_values(c, *move);
    expect_part_reduction(c, *move, one_reduction);
    if (c.ranks == Ranks::kSame) expect_crowded(*move);
    if (HasFailure()) return;
  }
  EXPECT_GT(carried_out, last * 3 / 4);
  EXPECT_GT(reduced_first, last / 20);
  EXPECT_GT(scaled, last / 50);
  EXPECT_GT(one_reduction, last / 50);
}

}  // namespace
}  // namespace muster::test
