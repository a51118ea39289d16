// A view without elements is taken by every call that takes views, whatever its strides are: a rank to which
// a cut leaves nothing makes the same calls as the others.
#include <muster/checkpoint.h>
#include <muster/kernels.h>
#include <muster/units.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/folder.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::test {
namespace {

// [4, 0] as row-major strides have it by two readings, and as nobody would write it.
struct Shape {
  Numbers size, stride;
};
const std::vector<Shape> kEmpty{
    {{4, 0}, {1, 1}}, {{4, 0}, {0, 1}}, {{4, 0}, {0, 0}}, {{4, 0}, {-3, -1}},     {{0, 4}, {4, 1}},
    {{0, 4}, {0, 0}}, {{0}, {0}},       {{0}, {7}},       {{2, 0, 3}, {0, 3, 1}}, {{2, 0, 3}, {3, 3, 1}}};

muster_tensor view_of(muster_buffer buffer, const Shape& shape) {
  muster_tensor view{buffer, 4, MUSTER_F32, static_cast<std::int32_t>(shape.size.size()), {}, {}};
  std::copy(shape.size.begin(), shape.size.end(), view.size);
  std::copy(shape.stride.begin(), shape.stride.end(), view.stride);
  return view;
}

std::string text_of(const Shape& shape) {
  std::string text = "size, stride:";
  for (std::size_t d = 0; d < shape.size.size(); ++d)
    text += " " + std::to_string(shape.size[d]) + ", " + std::to_string(shape.stride[d]) + ";";
  return text;
}

class EmptyViews : public RunningRanks {
 protected:
  static void launch(const Member& member, const muster_kernel& kernel) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = MUSTER_POINT_NONE;
    ok(muster_launch(member.session, &kernel, &submit, &point));
    if (point != MUSTER_POINT_NONE) ok(muster_point_wait(member.session, point, -1));
  }
  // An optimiser's use of a parameter and its gradient.
  static void update(const Member& member, const muster_tensor& gradient, const muster_tensor& parameter) {
    launch(member, muster_fill(parameter, 3));
    launch(member, muster_copy(gradient, parameter));
    launch(member, muster_axpby(-1, gradient, 1, parameter));
  }
};

TEST_F(EmptyViews, AreTakenByKernels) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 8), w = vector_of(member, 8);
    std::fill_n(v.data, 8, 5.0F);
    for (const Shape& shape : kEmpty) {
      SCOPED_TRACE(text_of(shape));
      update(member, view_of(w.buffer, shape), view_of(v.buffer, shape));
    }
    EXPECT_EQ(std::count(v.data, v.data + 8, 5.0F), 8);
  });
}

TEST_F(EmptyViews, AreComparedAsNothing) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    v.data[1] = static_cast<float>(member.rank);  // where the views begin
    for (const Shape& shape : kEmpty) {
      SCOPED_TRACE(text_of(shape));
      const muster_tensor view = view_of(v.buffer, shape);
      ok(muster_compare(member.session, member.group, &view, 1, 0));
    }
    await_all(member);
  });
}

// Goal:   beside faces that have elements: few that are packed, and many that are read where they lie.
TEST_F(EmptyViews, AreExchangedAsNothing) {
  with_ranks(2, [&](Member& member) {
    for (const std::int64_t count : {std::int64_t{4}, std::int64_t{100'000}}) {
      const Vector v = vector_of(member, static_cast<std::size_t>(2 * count));
      for (const Shape& shape : kEmpty) {
        SCOPED_TRACE(text_of(shape));
        std::fill_n(v.data, count, static_cast<float>(member.rank + 1));
        const std::int32_t other = 1 - member.rank;
        const auto bytes = static_cast<std::uint64_t>(count) * sizeof(float);
        const muster_face sends[] = {{other, 1, view_of(v.buffer, shape)},
                                     {other, 2, muster_view1(v.buffer, 0, MUSTER_F32, count)}};
        const muster_face receives[] = {{other, 1, view_of(v.buffer, shape)},
                                        {other, 2, muster_view1(v.buffer, bytes, MUSTER_F32, count)}};
        muster_collective c = MUSTER_COLLECTIVE_INIT;
        c.op = MUSTER_EXCHANGE;
        c.group = member.group;
        c.sends = sends;
        c.receives = receives;
        c.send_count = c.receive_count = 2;
        EXPECT_EQ(member.run(c), MUSTER_OK) << member.error;
        EXPECT_EQ(std::count(v.data + count, v.data + 2 * count, static_cast<float>(other + 1)), count);
        await_all(member);
      }
    }
  });
}

// Goal:   a matrix of one column and two ranks: columns to rows, and back, whatever the strides of nothing.
TEST_F(EmptyViews, AreRedistributed) {
  with_ranks(2, [&](Member& member) {
    const LayoutHandle columns = made({4, 1}, {shard("tp", 2, 1)});
    const LayoutHandle rows = made({4, 1}, {shard("tp", 2, 0)});
    const Vector v = vector_of(member, 8), w = vector_of(member, 8);
    for (const Shape& shape : kEmpty) {
      if (shape.size != Numbers{4, 0}) continue;
      SCOPED_TRACE(text_of(shape));
      for (int i = 0; i < 4; ++i) v.data[i] = static_cast<float>(i + 1);
      const muster_tensor column =
          member.rank == 0 ? muster_view2(v.buffer, 0, MUSTER_F32, 4, 1) : view_of(v.buffer, shape);
      const muster_tensor row = muster_view2(w.buffer, 0, MUSTER_F32, 2, 1);
      muster_plan there = 0, back = 0;
      ok(muster_plan_redistribution(member.session, member.group, columns.get(), &column, rows.get(), &row,
                                    &there));
      ok(muster_plan_redistribution(member.session, member.group, rows.get(), &row, columns.get(), &column,
                                    &back));
      ok(muster_plan_run(member.session, there, 0));
      for (int i = 0; i < 2; ++i) EXPECT_EQ(w.data[i], static_cast<float>(2 * member.rank + i + 1));
      std::fill_n(v.data, 8, 0.0F);
      ok(muster_plan_run(member.session, back, 0));
      for (int i = 0; i < 4; ++i) EXPECT_EQ(v.data[i], member.rank == 0 ? static_cast<float>(i + 1) : 0);
      await_all(member);
    }
  });
}

// Goal:   the views that muster_unit_tensor gives of a part that has no elements, in all that a trainer does.
TEST_F(EmptyViews, OfUnitsAreTakenByEveryCall) {
  const Folder folder;
  mesh = "tp=3";
  for (const Numbers& shape : {Numbers{4, 1}, Numbers{1, 4}, Numbers{2, 2, 2}, Numbers{2}}) {
    const auto cut = static_cast<std::int32_t>(std::min(shape.size() - 1, std::size_t{1}));
    with_ranks(3, [&](Member& member) {
      const LayoutHandle layout = made(shape, {shard("tp", 3, shape[0] == 1 ? 0 : cut)});
      muster_units* units = nullptr;
      ok(muster_units_create(member.session, nullptr, &units));
      const muster_parameter parameter{"w", layout.get(), MUSTER_F32, 0};
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.name = "u";
      options.parameters = &parameter;
      options.parameter_count = 1;
      muster_unit unit = 0;
      ok(muster_unit_create(units, &options, &unit));
      muster_point ready[2] = {};
      ok(muster_step_begin(units, MUSTER_POINT_NONE, 0));
      ok(muster_unit_forward_begin(units, unit, ready));
      ok(muster_unit_forward_end(units, unit, 0, MUSTER_POINT_NONE));
      ok(muster_unit_backward_begin(units, unit, ready));
      muster_tensor views[4];
      for (int which = 0; which < 4; ++which) ok(muster_unit_tensor(units, unit, 0, which, &views[which]));
      launch(member, muster_fill(views[MUSTER_UNIT_WHOLE_GRADIENT], member.rank + 1));
      ok(muster_unit_backward_end(units, unit, 0, MUSTER_POINT_NONE, 0, nullptr));
      ok(muster_step_end(units, MUSTER_POINT_NONE, ready));
      for (const muster_point point : ready) ok(muster_point_wait(member.session, point, -1));
      update(member, views[MUSTER_UNIT_GRADIENT_SHARD], views[MUSTER_UNIT_SHARD]);
      ok(muster_compare(member.session, MUSTER_GROUP_SELF, views, 4, 0));
      muster_checkpoints_options where = MUSTER_CHECKPOINTS_OPTIONS_INIT;
      where.folder = folder.path().c_str();
      where.group = member.group;
      muster_checkpoints* checkpoints = nullptr;
      ok(muster_checkpoints_open(member.session, &where, &checkpoints));
      const muster_checkpoint_tensor saved[] = {{"w", layout.get(), views[MUSTER_UNIT_SHARD]},
                                                {"g", layout.get(), views[MUSTER_UNIT_GRADIENT_SHARD]}};
      muster_checkpoint_save_options save = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
      save.name = "latest";
      save.flags = MUSTER_CHECKPOINT_REPLACE;
      save.tensors = saved;
      save.tensor_count = 2;
      ok(muster_checkpoint_save(checkpoints, &save));
      muster_checkpoint_load_options load = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
      load.tensors = saved;
      load.tensor_count = 2;
      ok(muster_checkpoint_load(checkpoints, &load, nullptr));
      ok(muster_checkpoints_close(checkpoints));
      ok(muster_units_destroy(units));
      meet_and_leave(member);
    });
  }
}

}  // namespace
}  // namespace muster::test
