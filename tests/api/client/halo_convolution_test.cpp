// A convolution of a field over real ranks: halos, interior and boundary kernels, and gradients by either
// way, held against one rank to the bit.
#include "api/client/stencil_handle.hpp"
#include "tests/api/base/halo/played.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <muster/field_kernels.h>
#include <muster/halo.h>

namespace {

using muster::Box;
using muster::halo::Halo;
using muster::halo::Stencil;
using muster::halo::Window;
using muster::halo::test::Items;
using muster::halo::test::layout_of;
using muster::test::Member;
using muster::test::ok;

// A field of rows, columns and channels, of which each rank has a part.
struct Case {
  const char* name;
  std::int64_t rows, columns, channels, outputs, kernel, stride, pad;
  Items cuts;     // ranks along rows and columns
  Items lengths;  // of rows; none: balanced
};

const Case kCases[] = {
    {"even", 24, 20, 5, 7, 3, 1, 1, {4, 1, 1}, {}},
    {"uneven and strided", 33, 20, 4, 6, 3, 2, 1, {4, 1, 1}, {9, 12, 7, 5}},
    {"narrower than its halo", 20, 12, 3, 8, 7, 1, 3, {4, 1, 1}, {2, 1, 2, 15}},
    {"an empty shard", 20, 12, 3, 8, 3, 1, 1, {4, 1, 1}, {8, 0, 7, 5}},
    {"both dims", 18, 22, 6, 4, 3, 1, 1, {2, 2, 1}, {}},
};

class Convolved : public muster::test::RunningRanks {};

struct Floats {
  muster_tensor view{};
  float* data = nullptr;
  std::int64_t count = 0;
};

Floats floats(Member& member, const std::vector<std::int64_t>& shape) {
  Floats made;
  made.count = 1;
  for (const std::int64_t size : shape) made.count *= size;
  muster_buffer buffer = 0;
  void* address = nullptr;
  ok(muster_buffer_alloc(member.session,
                         static_cast<std::uint64_t>(std::max<std::int64_t>(made.count, 1)) * 4, &buffer,
                         &address));
  made.data = static_cast<float*>(address);
  made.view = muster_view(buffer, 0, MUSTER_F32, static_cast<std::int32_t>(shape.size()), shape.data());
  return made;
}

float number(std::int64_t i, int of) {
  return static_cast<float>((i * 7919 + of * 31) % 1009 - 504) / 257.0F;
}

// [1, rows, columns, channels] of a box.
std::vector<std::int64_t> shape_of(const Box& box) {
  return {1, box.length[0], box.length[1], box.length[2]};
}

// A rank's part of the layer, or, if `halo` is of one rank, all of it.
struct Layer {
  Layer(Member& of, const Case& with, const Stencil& stencil, int rank)
      : member(of),
        c(with),
        mine(*stencil.halo(rank)),
        back(*stencil.gradient()->halo(rank)),
        x(floats(of, shape_of(mine.held))),
        y(floats(of, shape_of(mine.results))),
        dy(floats(of, shape_of(back.held))),
        dx(floats(of, shape_of(mine.own))),
        w(floats(of, {c.outputs, c.kernel, c.kernel, c.channels})),
        dw(floats(of, {c.outputs, c.kernel, c.kernel, c.channels})) {
    for (std::int64_t i = 0; i < w.count; ++i) w.data[i] = number(i, 3);
    fill(x, mine.held, mine.own, c.columns, c.channels, 1);
    fill(dy, back.held, back.own, back_columns(), c.outputs, 2);
  }
  std::int64_t back_columns() const { return (c.columns + 2 * c.pad - c.kernel) / c.stride + 1; }
  // Own items have the field's numbers; ghosts have none yet.
  static void fill(const Floats& array, const Box& held, const Box& own, std::int64_t columns,
                   std::int64_t channels, int of) {
    std::fill_n(array.data, array.count, std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = 0; i < own.length[0]; ++i)
      for (std::int64_t j = 0; j < own.length[1]; ++j)
        for (std::int64_t k = 0; k < channels; ++k)
          array.data[((own.offset[0] - held.offset[0] + i) * held.length[1] + own.offset[1] - held.offset[1] +
                      j) *
                         channels +
                     k] = number(((own.offset[0] + i) * columns + own.offset[1] + j) * channels + k, of);
  }
  muster_convolution numbers(const Box& box) const {
    muster_convolution n = MUSTER_CONVOLUTION_INIT;
    for (int d = 0; d < 2; ++d) {
      n.stride[d] = c.stride;
      n.before[d] = c.pad;
      n.offset[d] = box.offset[static_cast<std::size_t>(d)];
      n.length[d] = box.length[static_cast<std::size_t>(d)];
    }
    return n;
  }
  muster_plan plan(const muster_kernel& kernel) const {
    muster_plan made = 0;
    ok(muster_plan_kernel(member.session, &kernel, &made));
    return made;
  }
  static void offsets(muster_convolution& n, const Box& x_begins, const Box& y_begins) {
    for (std::size_t d = 0; d < 2; ++d) {
      n.x_offset[d] = x_begins.offset[d];
      n.y_offset[d] = y_begins.offset[d];
    }
  }
  muster_plan forward(const Box& box) const {
    muster_convolution n = numbers(box);
    offsets(n, mine.held, mine.results);
    return plan(muster_convolution_forward(&n, x.view, w.view, muster_none(), y.view));
  }
  muster_plan by_items(const Box& box) const {
    muster_convolution n = numbers(box);
    offsets(n, mine.own, back.held);
    return plan(muster_convolution_dgrad(&n, dy.view, w.view, dx.view, 0));
  }
  // Over own results, whose gradients lie inside of dy.
  muster_plan by_weights() const {
    muster_convolution n = numbers(mine.results);
    offsets(n, mine.held, back.held);
    return plan(muster_convolution_wgrad(&n, dy.view, x.view, dw.view, muster_none(), 0));
  }

  Member& member;
  const Case& c;
  Halo mine, back;
  Floats x, y, dy, dx, w, dw;
};

// The rank's part of an array of the whole field must be equal to the bit.
void expect_part(const Floats& part, const Box& box, const Floats& whole, std::int64_t columns,
                 std::int64_t channels) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < box.length[0]; ++i)
    for (std::int64_t j = 0; j < box.length[1]; ++j)
      for (std::int64_t k = 0; k < channels; ++k)
        wrong += part.data[(i * box.length[1] + j) * channels + k] !=
                 whole.data[((box.offset[0] + i) * columns + box.offset[1] + j) * channels + k];
  EXPECT_EQ(wrong, 0) << "of " << part.count;
}

void play(Member& member, const Case& c) {
  SCOPED_TRACE(c.name);
  Window window{Window::Kind::kConvolution, c.kernel, c.stride, 1, c.pad, c.pad};
  Window channels;
  channels.kind = Window::Kind::kWhole;
  channels.length = c.outputs;
  const std::vector<Window> windows{window, window, channels};
  const Items shape{c.rows, c.columns, c.channels};
  std::map<std::size_t, Items> lengths;
  if (!c.lengths.empty()) lengths[0] = c.lengths;
  const muster_stencil cut{*Stencil::make(layout_of(shape, c.cuts, lengths), windows)};
  const Stencil alone = *Stencil::make(layout_of(shape, {1, 1, 1}), windows);
  Layer part(member, c, cut.stencil, member.rank), whole(member, c, alone, 0);

  // The halo carries [rows, columns, channels]: the arrays without their dim of samples.
  const auto without_samples = [](muster_tensor t) {
    for (int d = 0; d < 3; ++d) {
      t.size[d] = t.size[d + 1];
      t.stride[d] = t.stride[d + 1];
    }
    t.size[3] = t.stride[3] = 0;
    t.dims = 3;
    return t;
  };
  std::vector<muster_plan> interior{part.forward(part.mine.interior)}, boundary;
  std::vector<muster_plan> back_interior{part.by_items(part.back.interior)}, back_boundary;
  for (const Box& box : part.mine.boundaries) boundary.push_back(part.forward(box));
  for (const Box& box : part.back.boundaries) back_boundary.push_back(part.by_items(box));
  muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
  set.group = member.group;
  muster_halos* halos = nullptr;
  ok(muster_halos_create(member.session, &set, &halos));
  muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
  options.name = c.name;
  options.stencil = &cut;
  options.gradients = MUSTER_HALO_FETCH;
  options.held = without_samples(part.x.view);
  options.held_gradients = without_samples(part.dy.view);
  options.forward = {interior.data(), boundary.data(), 1, static_cast<std::uint32_t>(boundary.size())};
  options.backward = {back_interior.data(), back_boundary.data(), 1,
                      static_cast<std::uint32_t>(back_boundary.size())};
  muster_halo halo = 0;
  ok(muster_halo_create(halos, &options, &halo));
  muster_point done = MUSTER_POINT_NONE;
  ok(muster_halo_forward(halos, halo, MUSTER_POINT_NONE, &done));
  ok(muster_halo_backward(halos, halo, done, &done));
  ok(muster_point_wait(member.session, done, -1));
  for (const muster_plan plan : {part.by_weights(), whole.forward(whole.mine.results),
                                 whole.by_items(whole.mine.own), whole.by_weights()}) {
    const muster_submit submit = MUSTER_SUBMIT_INIT;
    ok(muster_plan_start(member.session, plan, &submit, &done));
  }
  ok(muster_point_wait(member.session, done, -1));
  expect_part(part.y, part.mine.results, whole.y, whole.back_columns(), c.outputs);
  expect_part(part.dx, part.mine.own, whole.dx, c.columns, c.channels);

  // Gradients by weights are addends: their sum is that of one rank, but for the order of its terms.
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  sum.op = MUSTER_ALL_REDUCE;
  sum.group = member.group;
  sum.dtype = MUSTER_F32;
  sum.redop = MUSTER_SUM;
  sum.source.buffer = sum.target.buffer = part.dw.view.buffer;
  sum.count = static_cast<std::uint64_t>(part.dw.count);
  ASSERT_EQ(member.run(sum), MUSTER_OK) << member.error;
  for (std::int64_t i = 0; i < part.dw.count; ++i) EXPECT_NEAR(part.dw.data[i], whole.dw.data[i], 2e-3);
  ok(muster_halos_destroy(halos));
}

TEST_F(Convolved, IsWhatOneRankComputes) {
  with_ranks(4, [&](Member& member) {
    for (const Case& c : kCases) {
      play(member, c);
      await_all(member);
    }
    meet_and_leave(member);
  });
}

}  // namespace
