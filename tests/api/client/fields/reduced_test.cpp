// Sums and means of fields that are cut over ranks, and their gradients.
#include "tests/api/client/fields/layer.hpp"

#include <numeric>
#include <vector>

#include <muster/kernels.h>

namespace {

using muster::Box;
using muster::halo::test::layout_of;
using muster::test::add_up;
using muster::test::Draw;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::flat;
using muster::test::Items;
using muster::test::kEpochs;
using muster::test::Late;
using muster::test::Member;
using muster::test::ok;
using muster::test::product;
using muster::test::start;
using muster::test::values;

class ReducedFields : public muster::test::RunningRanks {};

Box box_of(const Items& shape, const std::vector<Items>& lengths, std::int64_t rank) {
  Items with_channels = shape, cuts;
  std::map<std::size_t, Items> given;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    cuts.push_back(static_cast<std::int64_t>(lengths[d].size()));
    given[d] = lengths[d];
  }
  with_channels.push_back(3);
  cuts.push_back(1);
  const std::vector<muster::test::Window> each(shape.size() + 1);
  return muster::test::Stencil::make(layout_of(with_channels, cuts, given), each)->halo(rank)->own;
}

// Goal:   R1 of the catalogue: the mean of 1 2 3 | 4 is 2.5, also with an empty third shard, and each item's
//         gradient is a quarter.
TEST_F(ReducedFields, OfUnevenAndEmptyShardsHaveTheirMean) {
  for (const Items& sizes : {Items{3, 1}, Items{3, 1, 0}})
    with_ranks(static_cast<int>(sizes.size()), [&](Member& member) {
      const std::int64_t own = sizes[static_cast<std::size_t>(member.rank)], first = member.rank == 0 ? 0 : 3;
      FieldArray x(member, muster::test::line(own), 1, 1, MUSTER_F32),
          dx(member, muster::test::line(own), 1, 1, MUSTER_F32),
          mean(member, muster::test::line(1), 1, 1, MUSTER_F32);
      Late late(91, member.rank);
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        for (std::int64_t i = 0; i < own; ++i) x.set(i, static_cast<double>((first + i + 1) << epoch));
        late.maybe();
        start(member, muster_sum_over(x.view, mean.view, 0.25, 0));
        add_up(member, member.group, mean);
        EXPECT_EQ(mean.get(0), 2.5 * (1 << epoch));
        mean.set(0, 1);
        start(member, muster_spread(mean.view, dx.view, 0.25, 0));
        for (std::int64_t i = 0; i < own; ++i) EXPECT_EQ(dx.get(i), 0.25);
      }
      for (const FieldArray* const array : {&x, &dx, &mean})
        ok(muster_buffer_free(member.session, array->view.buffer));
      meet_and_leave(member);
    });
}

// Goal:   R2: sums and means over rows, columns, both, or all dims, of a field that is cut in both.
TEST_F(ReducedFields, OverAnyDimsOfAMeshAreWhatOneRankComputes) {
  const Items shape{6, 7}, whole{6, 7, 3};
  mesh = "dp_shard=2,domain=2";
  with_ranks(4, [&](Member& member) {
    const Box own = box_of(shape, {{4, 2}, {3, 4}}, member.rank);
    FieldArray x(member, own, 2, 3, MUSTER_F32), dx(member, own, 2, 3, MUSTER_F32);
    Draw draw(92);
    Late late(93, member.rank);
    for (const std::vector<bool>& lost : {std::vector<bool>{true, false, false},
                                          {false, true, false},
                                          {true, true, false},
                                          {true, true, true}}) {
      Box narrow = own;
      Items right_shape = whole;
      for (std::size_t d = 0; d < 3; ++d)
        if (lost[d]) {
          narrow.offset[d] = 0;
          narrow.length[d] = right_shape[d] = 1;
        }
      muster_group group = member.group;
      if (!lost[1]) ok(muster_mesh_group(member.session, "dp_shard", &group));
      if (!lost[0]) ok(muster_mesh_group(member.session, "domain", &group));
      const std::int64_t last = lost[2] ? 1 : 3;
      FieldArray sums(member, narrow, 2, last, MUSTER_F32);
      const auto count = static_cast<double>(product(whole) / product(right_shape));
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        const std::vector<double> all = values(draw, product(whole), muster::test::Numbers::kWhole);
        const std::vector<double> dy = values(draw, product(right_shape), muster::test::Numbers::kWhole);
        const auto narrowed = [&](Items at) {
          for (std::size_t d = 0; d < 3; ++d)
            if (lost[d]) at[d] = 0;
          return static_cast<std::size_t>(flat(right_shape, at));
        };
        std::vector<double> right(dy.size());
        for (std::int64_t i = 0; i < product(whole); ++i)
          right[narrowed({i / 21, i / 3 % 7, i % 3})] += all[static_cast<std::size_t>(i)];
        each_item(own, [&](const Items& i) {
          for (std::int64_t c = 0; c < 3; ++c)
            x.set(i, c, all[static_cast<std::size_t>(flat(whole, {i[0], i[1], c}))]);
        });
        late.maybe();
        start(member, muster_sum_over(x.of_halo(), sums.of_halo(), 1, 0));
        add_up(member, group, sums);
        each_item(narrow, [&](const Items& i) {
          for (std::int64_t c = 0; c < last; ++c)
            EXPECT_EQ(sums.get(i, c), right[narrowed({i[0], i[1], c})]) << "sum";
        });
        each_item(narrow, [&](const Items& i) {
          for (std::int64_t c = 0; c < last; ++c) sums.set(i, c, dy[narrowed({i[0], i[1], c})]);
        });
        start(member, muster_spread(sums.of_halo(), dx.of_halo(), 1 / count, 0));
        each_item(own, [&](const Items& i) {
          for (std::int64_t c = 0; c < 3; ++c)
            EXPECT_FLOAT_EQ(static_cast<float>(dx.get(i, c)),
                            static_cast<float>(dy[narrowed({i[0], i[1], c})] / count))
                << "gradient of the mean";
        });
      }
      ok(muster_buffer_free(member.session, sums.view.buffer));
    }
    for (const FieldArray* const array : {&x, &dx})
      ok(muster_buffer_free(member.session, array->view.buffer));
    meet_and_leave(member);
  });
}

// Goal:   R4: a cotangent that is an addend on each rank, of rank + 1, is summed before it is spread. One
//         that all have whole is not summed again.
TEST_F(ReducedFields, SumACotangentOfAddendsOnce) {
  with_ranks(4, [&](Member& member) {
    FieldArray dy(member, muster::test::line(1), 1, 1, MUSTER_F32),
        dx(member, muster::test::line(2 + member.rank), 1, 1, MUSTER_F32);
    for (int epoch = 1; epoch <= kEpochs; ++epoch) {
      dy.set(0, epoch * (member.rank + 1));
      add_up(member, member.group, dy);
      start(member, muster_spread(dy.view, dx.view, 1, 0));
      for (std::int64_t i = 0; i < dx.count(); ++i) EXPECT_EQ(dx.get(i), epoch * 4 * 5 / 2);
      dy.set(0, 1);
      start(member, muster_spread(dy.view, dx.view, 1, 0));
      for (std::int64_t i = 0; i < dx.count(); ++i) EXPECT_EQ(dx.get(i), 1);
    }
    for (const FieldArray* const array : {&dy, &dx})
      ok(muster_buffer_free(member.session, array->view.buffer));
    meet_and_leave(member);
  });
}

}  // namespace
