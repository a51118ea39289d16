// Fields that change how they are cut: each element arrives, once and to the bit, however uneven the shards.
#include <muster/layouts.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <muster/kernels.h>

namespace muster::test {
namespace {

// A cut into given lengths, which the caller keeps.
muster_layout_axis cut(const char* name, std::int32_t dim, const Numbers& lengths) {
  muster_layout_axis axis = shard(name, static_cast<std::int32_t>(lengths.size()), dim, MUSTER_SPLIT_GIVEN);
  axis.lengths = lengths.data();
  axis.length_count = static_cast<std::uint32_t>(lengths.size());
  return axis;
}

class RedistributedFields : public RunningRanks {
 protected:
  struct Array {
    Vector vector;
    muster_tensor view{};
  };
  static Array array_of(Member& member, const LayoutHandle& layout, std::size_t dims) {
    const Numbers shape = local_shape(layout, member.rank, dims);
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    Array array{vector_of(member, static_cast<std::size_t>(count) + 1), {}};
    array.view =
        muster_view(array.vector.buffer, 0, MUSTER_F32, static_cast<std::int32_t>(dims), shape.data());
    for (std::int64_t i = 0; i < count; ++i) array.vector.data[i] = -1;
    return array;
  }
  // Visits each element that a rank has: its place in the rank's array, and its number in the field.
  template<class Visit>
  static void each(Member& member, const LayoutHandle& layout, const Numbers& shape, Visit visit) {
    const Numbers own = local_shape(layout, member.rank, shape.size());
    for (const muster_box& box : pieces(layout, member.rank)) {
      std::int64_t count = 1;
      for (std::size_t d = 0; d < shape.size(); ++d) count *= box.length[d];
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t left = i, place = 0, number = 0, place_step = 1, number_step = 1;
        for (std::size_t d = shape.size(); d-- > 0; left /= box.length[d]) {
          const std::int64_t at = left % box.length[d];
          place += (box.at[d] + at) * place_step;
          number += (box.offset[d] + at) * number_step;
          place_step *= own[d];
          number_step *= shape[d];
        }
        visit(place, number);
      }
    }
  }
  // Each element arrives, with other numbers each time. `addends`: how many ranks have it as an addend.
  static void expect_carries(Member& member, const Numbers& shape, const Axes& from_axes, const Axes& to_axes,
                             float addends = 1) {
    const LayoutHandle from = made(shape, from_axes), to = made(shape, to_axes);
    const Array source = array_of(member, from, shape.size()), target = array_of(member, to, shape.size());
    std::uint64_t before = 0, after = 0;
    ok(muster_counter(member.session, "buffer_bytes_peak", &before));
    muster_plan plan = 0;
    ok(muster_plan_redistribution(member.session, member.group, from.get(), &source.view, to.get(),
                                  &target.view, &plan));
    for (const float epoch : {0.0F, 1000.0F, 5000.0F}) {
      each(member, from, shape, [&](std::int64_t place, std::int64_t number) {
        source.vector.data[place] = epoch + static_cast<float>(number);
      });
      ok(muster_plan_run(member.session, plan, 0));
      std::int64_t count = 0;
      each(member, to, shape, [&](std::int64_t place, std::int64_t number) {
        EXPECT_EQ(target.vector.data[place], addends * (epoch + static_cast<float>(number)));
        ++count;
      });
      const Numbers own = local_shape(to, member.rank, shape.size());
      EXPECT_EQ(count, std::accumulate(own.begin(), own.end(), std::int64_t{1}, std::multiplies<>()));
    }
    // A rank needs no memory but its own two arrays.
    ok(muster_counter(member.session, "buffer_bytes_peak", &after));
    EXPECT_EQ(after, before);
    ok(muster_plan_destroy(member.session, plan));
    for (const Array& array : {source, target}) ok(muster_buffer_free(member.session, array.vector.buffer));
  }
};

// Goal:   D1 of the catalogue: rows in 4, 10, 16 and 22, cut anew along another dim, gathered, and cut again;
//         and the same over a mesh of two axes, which change places.
TEST_F(RedistributedFields, OfUnevenShardsArriveToTheBit) {
  const Numbers shape{6, 52, 8}, rows{4, 10, 16, 22}, columns{1, 0, 5, 2}, halves{40, 12}, parts{3, 5};
  with_ranks(4, [&](Member& member) {
    const Axes by_rows{cut("r", 1, rows)}, by_columns{cut("r", 2, columns)}, whole{replicate("r", 4)};
    const Axes one{cut("a", 1, halves), cut("b", 2, parts)}, other{cut("a", 2, parts), cut("b", 1, halves)},
        left{cut("a", 2, parts), replicate("b", 2)}, batch{shard("a", 2, 0), replicate("b", 2)};
    const Axes* const pairs[][2] = {{&by_rows, &by_columns}, {&by_columns, &by_rows}, {&by_rows, &whole},
                                    {&whole, &by_rows},      {&one, &other},          {&other, &one},
                                    {&other, &left},         {&left, &other},         {&left, &batch},
                                    {&one, &whole}};
    for (const auto& [from, to] : pairs) expect_carries(member, shape, *from, *to);
    meet_and_leave(member);
  });
}

// Goal:   D3 (ours): rows stay rows, in other lengths.
TEST_F(RedistributedFields, OfOtherLengthsArriveToTheBit) {
  const Numbers before{4, 10, 16, 22}, after{22, 0, 20, 10};
  with_ranks(4, [&](Member& member) {
    expect_carries(member, {52, 3}, {cut("r", 0, before)}, {cut("r", 0, after)});
    expect_carries(member, {52, 3}, {cut("r", 0, after)}, {cut("r", 0, before)});
    meet_and_leave(member);
  });
}

// Goal:   D5 and D6: a shard without items, two items over four ranks, and numbers of items that no rule
//         divides evenly. Ranks have what the layout says.
TEST_F(RedistributedFields, OfFewItemsArriveToTheBit) {
  const Numbers rows{3, 0, 2, 0}, columns{0, 1, 0, 1};
  with_ranks(4, [&](Member& member) {
    expect_carries(member, {5, 2}, {cut("r", 0, rows)}, {cut("r", 1, columns)});
    expect_carries(member, {5, 2}, {cut("r", 0, rows)}, {shard("r", 4, 1, MUSTER_SPLIT_CEIL)});
    for (const std::int64_t items : {9, 5, 3, 2, 17, 257})
      for (const muster_split split : {MUSTER_SPLIT_CEIL, MUSTER_SPLIT_BALANCED}) {
        const Axes sharded{shard("r", 4, 0, split)}, whole{replicate("r", 4)};
        expect_carries(member, {items, 3}, whole, sharded);
        expect_carries(member, {items, 3}, sharded, whole);
      }
    meet_and_leave(member);
  });
}

// Goal:   D7: addends become shards of 5, 1, 0 and 2 items.
TEST_F(RedistributedFields, OfAddendsArriveAsUnevenShards) {
  const Numbers rows{5, 1, 0, 2};
  with_ranks(4, [&](Member& member) {
    expect_carries(member, {8, 3}, {partial("r", 4)}, {cut("r", 0, rows)}, 4);
    meet_and_leave(member);
  });
}

// Goal:   D9: what rank 2 alone has is scattered to two by two ranks. No rank needs memory but for its part.
TEST_F(RedistributedFields, OfOneRankAreScattered) {
  const Numbers all_at_2{0, 0, 7, 0}, rows{4, 3}, columns{2, 4};
  with_ranks(4, [&](Member& member) {
    const Axes one{cut("r", 0, all_at_2)}, mesh_of_2{cut("a", 0, rows), cut("b", 1, columns)};
    expect_carries(member, {7, 6}, one, mesh_of_2);
    expect_carries(member, {7, 6}, mesh_of_2, one);
    meet_and_leave(member);
  });
}

}  // namespace
}  // namespace muster::test
