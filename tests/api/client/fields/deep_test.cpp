// Two layers of a field that share one exchange, and views of gradients that are spread or have gaps.
#include "tests/api/client/fields/layer.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::Box;
using muster::test::add_up;
using muster::test::compute;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::FieldErrors;
using muster::test::flat;
using muster::test::Halo;
using muster::test::HaloParts;
using muster::test::HaloSet;
using muster::test::Items;
using muster::test::kNothing;
using muster::test::kSame;
using muster::test::Late;
using muster::test::Layer;
using muster::test::layer_of;
using muster::test::LayerEpoch;
using muster::test::LayerPart;
using muster::test::line;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::start;
using muster::test::Stencil;
using muster::test::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two layers, of which the second takes the results of the first.
struct TwoLayers {
  TwoLayers(const Items& sizes, Numbers numbers)
      : first(layer_of("first", {8, 5}, kSame, {sizes}, numbers, 51, 2, 3)),
        second(layer_of("second", {8, 5}, kSame, {sizes}, numbers, 52, 3, 2)) {
    for (std::size_t i = 0; i < first.epochs.size(); ++i) {
      second.epochs[i].x = first.epochs[i].y;
      compute(second, second.epochs[i]);
      first.epochs[i].dy = second.epochs[i].dx;
      compute(first, first.epochs[i]);
    }
    std::vector<Window> windows = first.all;
    windows.insert(windows.end(), second.all.begin(), second.all.end());
    deep = *Stencil::make(first.cut->layout(), windows);
  }
  Layer first, second;
  std::optional<Stencil> deep;
};

// Both layers at a rank, behind one exchange of two rows. Weights and sums are those of `first` and `second`.
class DeepPart {
 public:
  DeepPart(Member& member, const TwoLayers& of, LayerPart& first, LayerPart& second)
      : two_(of),
        first_(first),
        second_(second),
        mine(*of.deep->halo(member.rank)),
        x(member, mine.held, 2, of.first.channels, MUSTER_F32),
        between(member, mine.layers[0], 2, of.first.outputs, MUSTER_F32),
        y(member, mine.results, 2, of.second.outputs, MUSTER_F32),
        dx(member, mine.held, 2, of.first.channels, MUSTER_F32),
        dbetween(member, mine.layers[0], 2, of.first.outputs, MUSTER_F32),
        dy(member, mine.results, 2, of.second.outputs, MUSTER_F32) {}
  DeepPart(const DeepPart&) = delete;
  DeepPart& operator=(const DeepPart&) = delete;
  ~DeepPart() {
    for (const muster_plan plan : plans_) ok(muster_plan_destroy(first_.member.session, plan));
    for (const FieldArray* const array : {&x, &between, &y, &dx, &dbetween, &dy})
      ok(muster_buffer_free(first_.member.session, array->view.buffer));
  }
  HaloParts halo() {
    const Box& middle = mine.layers[0];
    HaloParts parts{*two_.deep, MUSTER_CORNERS_DIRECT, MUSTER_HALO_RETURN, x.of_halo(), dx.of_halo(), {}, {}};
    muster_convolution n = first_.numbers(middle, mine.held, middle);
    muster_convolution m = second_.numbers(mine.results, middle, mine.results);
    parts.forward.boundary = {
        keep(muster_convolution_forward(&n, x.view, first_.w.view, first_.bias.view, between.view)),
        keep(muster_convolution_forward(&m, between.view, second_.w.view, second_.bias.view, y.view))};
    weights_ = {
        keep(muster_convolution_wgrad(&n, dbetween.view, x.view, first_.dw.view, first_.db.view, 0)),
        keep(muster_convolution_wgrad(&m, dy.view, between.view, second_.dw.view, second_.db.view, 0))};
    n = first_.numbers(mine.held, mine.held, middle);
    m = second_.numbers(middle, middle, mine.results);
    parts.backward.boundary = {keep(muster_convolution_dgrad(&m, dy.view, second_.w.view, dbetween.view, 0)),
                               keep(muster_convolution_dgrad(&n, dbetween.view, first_.w.view, dx.view, 0))};
    return parts;
  }
  void fill(const LayerEpoch& in, const LayerEpoch& out) {
    for (FieldArray* const array : {&x, &between, &y, &dx, &dbetween, &dy}) array->fill(kNothing);
    copy(two_.first.items, mine.own, in.x, x, two_.first.channels);
    copy(two_.second.results, mine.results, out.dy, dy, two_.second.outputs);
  }
  const std::array<muster_plan, 2>& weights() const { return weights_; }
  static void copy(const Items& shape, const Box& box, const std::vector<double>& from, FieldArray& to,
                   std::int64_t channels) {
    each_item(box, [&](const Items& i) {
      for (std::int64_t c = 0; c < channels; ++c)
        to.set(i, c, from[static_cast<std::size_t>(flat(shape, i) * channels + c)]);
    });
  }

 private:
  muster_plan keep(const muster_kernel& kernel) {
    ok(muster_plan_kernel(first_.member.session, &kernel, &plans_.emplace_back()));
    return plans_.back();
  }

  const TwoLayers& two_;
  LayerPart& first_;
  LayerPart& second_;
  std::array<muster_plan, 2> weights_{};
  std::vector<muster_plan> plans_;

 public:
  Halo mine;
  FieldArray x, between, y, dx, dbetween, dy;
};

class DeepFields : public muster::test::Fields<TwoLayers> {
 protected:
  static void play(Member& member, const TwoLayers& two) {
    LayerPart first(member, two.first, *two.first.cut, member.rank, MUSTER_HALO_RETURN);
    LayerPart second(member, two.second, *two.second.cut, member.rank, MUSTER_HALO_RETURN);
    DeepPart deep(member, two, first, second);
    HaloSet halos(member, member.group);
    const muster_halo shared = halos.add(deep.halo(), "both"), one = halos.add(first.halo(), "first"),
                      other = halos.add(second.halo(), "second");
    Late late(53, member.rank);
    for (std::size_t epoch = 0; epoch < two.first.epochs.size(); ++epoch) {
      const LayerEpoch &in = two.first.epochs[epoch], &out = two.second.epochs[epoch];
      deep.fill(in, out);
      late.maybe();
      halos.forward(shared);
      late.maybe();
      halos.backward(shared);
      for (const muster_plan plan : deep.weights()) start(member, plan);
      for (const LayerPart* const part : {&first, &second}) {
        add_up(member, member.group, part->dw);
        add_up(member, member.group, part->db);
      }
      expect_right_sums(in, first);
      expect_right_sums(out, second);
      // The same by two exchanges.
      first.fill(in);
      halos.forward(one);
      second.fill(out);
      each_item(second.mine.own, [&](const Items& i) {
        for (std::int64_t c = 0; c < two.first.outputs; ++c) second.x.set(i, c, first.y.get(i, c));
      });
      halos.forward(other);
      expect_right(two, in, out, deep, second);
    }
  }
  static void expect_right(const TwoLayers& two, const LayerEpoch& in, const LayerEpoch& out,
                           const DeepPart& deep, const LayerPart& second) {
    FieldErrors y, dx, bits;
    const double scale = 10 * out.y_terms, gradient_scale = 10 * in.dx_terms;
    each_item(deep.mine.results, [&](const Items& o) {
      for (std::int64_t k = 0; k < two.second.outputs; ++k) {
        y.note(deep.y.get(o, k),
               out.y[static_cast<std::size_t>(flat(two.second.results, o) * two.second.outputs + k)], scale);
        bits.note(deep.y.get(o, k), second.y.get(o, k), 1);
      }
    });
    each_item(deep.mine.own, [&](const Items& i) {
      for (std::int64_t c = 0; c < two.first.channels; ++c)
        dx.note(deep.dx.get(i, c),
                in.dx[static_cast<std::size_t>(flat(two.first.items, i) * two.first.channels + c)],
                gradient_scale);
    });
    EXPECT_EQ(bits.unequal, 0) << "one exchange or two";
    EXPECT_LE(y.most, two.first.numbers == Numbers::kWhole ? 0 : 1e-6) << "forward";
    EXPECT_LE(dx.most, two.first.numbers == Numbers::kWhole ? 0 : 1e-6) << "by items";
  }
};

// Goal:   C9 of the catalogue: two layers behind one exchange, of two rows, give the bits of two exchanges.
//         What the first computes outside of the field stays a pad of the second.
TEST_F(DeepFields, GiveTheBitsOfTwoExchanges) {
  for (const Items& sizes : {Items{3, 3, 2}, Items{1, 6, 1}, Items{5, 0, 3}})
    for (const Numbers numbers : {Numbers::kWhole, Numbers::kFloats}) {
      const TwoLayers two(sizes, numbers);
      with_ranks(3, [&](Member& member) {
        play(member, two);
        meet_and_leave(member);
      });
    }
}

// ---- views of gradients -----------------------------------------------------------------------------

// The strides of an array whose channels come first in memory.
muster_tensor channels_first(const muster_tensor& dense) {
  muster_tensor view = dense;
  std::int64_t stride = 1;
  for (std::int32_t d = dense.dims - 2; d > 0; --d) {
    view.stride[d] = stride;
    stride *= dense.size[d];
  }
  view.stride[dense.dims - 1] = stride;
  view.stride[0] = stride * dense.size[dense.dims - 1];
  return view;
}
muster_tensor spread(const muster_tensor& dense) {
  muster_tensor view = dense;
  for (std::int32_t d = 0; d < dense.dims; ++d) view.stride[d] = 0;
  return view;
}

std::vector<double> all_of(const FieldArray& array) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < array.count(); ++i) all.push_back(array.get(i));
  return all;
}
// Puts channels, which came last in memory, first.
void turn(FieldArray& array, std::int64_t channels) {
  const std::vector<double> dense = all_of(array);
  const std::int64_t pixels = array.count() / channels;
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      array.set(c * pixels + i, dense[static_cast<std::size_t>(i * channels + c)]);
}

class ViewedFields : public muster::test::Fields<Layer> {};

// Goal:   C10: gradients of results whose channels come first in memory. They are right, and nobody writes
//         into them.
TEST_F(ViewedFields, OfGradientsMayBeTransposed) {
  const Layer l = layer_of("views", {9, 5}, kSame, {{5, 4}}, Numbers::kWhole, 54);
  with_ranks(2, [&](Member& member) {
    LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_RETURN);
    const muster_tensor dy = channels_first(part.dy.view);
    const muster_convolution n = part.numbers(part.mine.held, part.mine.held, part.mine.results);
    const muster_convolution m = part.numbers(part.mine.results, part.mine.held, part.mine.results);
    HaloParts parts = part.halo();
    parts.backward.boundary = {part.keep(muster_convolution_dgrad(&n, dy, part.w.view, part.dx.view, 0))};
    const muster_plan by_weights =
        part.keep(muster_convolution_wgrad(&m, dy, part.x.view, part.dw.view, part.db.view, 0));
    HaloSet halos(member, member.group);
    halos.add(parts);
    for (const LayerEpoch& e : l.epochs) {
      part.fill(e);
      turn(part.dy, l.outputs);
      const std::vector<double> before = all_of(part.dy);
      halos.forward();
      start(member, by_weights);
      halos.backward();
      EXPECT_EQ(all_of(part.dy), before);
      add_up(member, member.group, part.dw);
      add_up(member, member.group, part.db);
      expect_right(e, part);
      expect_right_sums(e, part);
    }
    meet_and_leave(member);
  });
}

// Goal:   C10: gradients that are one number, spread over all results, are refused by name, by kernels and by
//         halos; muster_spread makes an array of it.
TEST_F(ViewedFields, OfGradientsAreMadeOfASpreadNumber) {
  Layer l = layer_of("views", {9, 5}, kSame, {{5, 4}}, Numbers::kWhole, 55);
  for (LayerEpoch& e : l.epochs) {
    std::fill(e.dy.begin(), e.dy.end(), e.dy[0]);
    compute(l, e);
  }
  with_ranks(2, [&](Member& member) {
    LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_RETURN);
    const muster_convolution n = part.numbers(part.mine.held, part.mine.held, part.mine.results);
    const muster_kernel refused =
        muster_convolution_dgrad(&n, spread(part.dy.view), part.w.view, part.dx.view, 0);
    muster_plan none = 0;
    EXPECT_EQ(muster_plan_kernel(member.session, &refused, &none), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("convolution_dgrad: dy: stride 0"), HasSubstr("would repeat one element")));
    FieldArray number(member, line(1), 1, 1, MUSTER_F32);
    muster_tensor one = number.view;
    one.dims = part.dy.view.dims;
    std::fill_n(one.size, one.dims, 1);
    std::fill_n(one.stride, one.dims, 1);
    auto halos = std::make_unique<HaloSet>(member, member.group);
    halos->add(part.halo());
    for (const LayerEpoch& e : l.epochs) {
      part.fill(e);
      part.dy.fill(kNothing);
      number.set(0, e.dy[0]);
      start(member, muster_spread(one, part.dy.view, 1, 0));
      halos->forward();
      halos->backward();
      expect_right(e, part);
    }
    halos.reset();
    ok(muster_buffer_free(member.session, number.view.buffer));
    LayerPart fetching(member, l, *l.cut, member.rank, MUSTER_HALO_FETCH);
    HaloParts parts = fetching.halo();
    parts.gradients = spread(parts.gradients);
    HaloSet spreading(member, member.group);
    spreading.add(parts);
    muster_point done = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_halo_forward(spreading.get(), 0, MUSTER_POINT_NONE, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("would repeat one element"));
    meet_and_leave(member);
  });
}

// Goal:   C10: items whose channels come first in memory are exchanged and read where they are.
TEST_F(ViewedFields, OfItemsMayBeTransposed) {
  const Layer l = layer_of("views", {9, 5}, kSame, {{5, 4}}, Numbers::kWhole, 56);
  with_ranks(2, [&](Member& member) {
    LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_FETCH);
    const muster_tensor turned = channels_first(part.x.view);
    const muster_convolution n = part.numbers(part.mine.results, part.mine.held, part.mine.results);
    HaloParts parts = part.halo();
    parts.held = turned;
    for (std::int32_t d = 0; d + 1 < parts.held.dims; ++d) {
      parts.held.size[d] = turned.size[d + 1];
      parts.held.stride[d] = turned.stride[d + 1];
    }
    parts.held.size[turned.dims - 1] = parts.held.stride[turned.dims - 1] = 0;
    --parts.held.dims;
    parts.forward = {
        {}, {part.keep(muster_convolution_forward(&n, turned, part.w.view, part.bias.view, part.y.view))}};
    const muster_convolution m = part.numbers(part.mine.results, part.mine.held, part.back.held);
    const muster_plan by_weights =
        part.keep(muster_convolution_wgrad(&m, part.dy.view, turned, part.dw.view, part.db.view, 0));
    HaloSet halos(member, member.group);
    halos.add(parts);
    for (const LayerEpoch& e : l.epochs) {
      part.fill(e);
      turn(part.x, l.channels);
      halos.forward();
      start(member, by_weights);
      halos.backward();
      add_up(member, member.group, part.dw);
      add_up(member, member.group, part.db);
      expect_right(e, part);
      expect_right_sums(e, part);
    }
    meet_and_leave(member);
  });
}

}  // namespace
