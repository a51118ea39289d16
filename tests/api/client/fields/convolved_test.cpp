// Random layers of convolutions by real ranks: halos, and the kernels that run around them. An oracle in
// plain loops and doubles, which knows nothing of shards, has the right values.
#include "tests/api/client/fields/fields.hpp"

#include <optional>
#include <string>

namespace {

using muster::Box;
using muster::halo::test::layout_of;
using muster::halo::test::Played;
using muster::test::Draw;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::FieldErrors;
using muster::test::flat;
using muster::test::Grid;
using muster::test::Halo;
using muster::test::Items;
using muster::test::line;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::product;
using muster::test::Stencil;
using muster::test::values;
using muster::test::Window;

class Convolved : public muster::test::Fields {
 protected:
  void play(Member& member, const struct Layer& l);
};

// ---- the layer, and its right values -------------------------------------------------------------

// A convolution of a field. All ranks draw the same one.
struct Layer {
  std::size_t dims = 1;
  std::int64_t ranks = 1, groups = 1, channels = 1, outputs = 1;
  std::vector<Window> windows;  // spatial
  Items items, results, kernels;
  std::vector<Window> all;  // with that of channels
  Items cuts;
  std::map<std::size_t, Items> lengths;
  std::optional<Stencil> cut, whole;
  bool zeros = true;  // in all pads
  Numbers numbers = Numbers::kWhole;
  std::string text;
  std::vector<double> x, w, bias, dy;  // as the dtype has them
  double y_terms = 1e-30, dx_terms = 1e-30, dw_terms = 1e-30,
         db_terms = 1e-30;            // the most that a value's terms add up to
  std::vector<double> y, dx, dw, db;  // the oracle's
  std::int64_t taps() const {
    return std::accumulate(kernels.begin(), kernels.end(), std::int64_t{1}, std::multiplies<>());
  }
  std::int64_t own_channels() const { return channels / groups; }
  muster_dtype dtype() const { return numbers == Numbers::kHalves ? MUSTER_BF16 : MUSTER_F32; }
};

// The item that a pad repeats.
Items real(const Layer& l, Items item) {
  for (std::size_t d = 0; d < l.dims; ++d) {
    const std::int64_t n = l.items[d];
    std::int64_t& i = item[d];
    if (i >= 0 && i < n) continue;
    if (l.windows[d].pad == Window::Pad::kCircular) i = ((i % n) + n) % n;
    if (l.windows[d].pad == Window::Pad::kReflect) i = i < 0 ? -i : 2 * n - 2 - i;
    if (l.windows[d].pad == Window::Pad::kReplicate) i = i < 0 ? 0 : n - 1;
  }
  return item;
}

// Fills in the right values.
void compute(Layer& l) {
  const Played played(l.windows, l.items, Grid(l.kernels));
  const std::int64_t per = l.outputs / l.groups, own = l.own_channels();
  l.y.assign(static_cast<std::size_t>(product(l.results) * l.outputs), 0);
  l.dx.assign(l.x.size(), 0);
  l.dw.assign(l.w.size(), 0);
  l.db.assign(l.bias.size(), 0);
  std::vector<double> y_terms(l.y.size()), dx_terms(l.dx.size()), dw_terms(l.dw.size()),
      db_terms(l.db.size());
  const auto add = [](double& to, double& terms, double term) {
    to += term;
    terms += std::abs(term);
  };
  Grid::each(l.results, [&](const Items& o) {
    for (std::int64_t k = 0; k < l.outputs; ++k) {
      const auto at = static_cast<std::size_t>(flat(l.results, o) * l.outputs + k);
      add(l.y[at], y_terms[at], l.bias[static_cast<std::size_t>(k)]);
      add(l.db[static_cast<std::size_t>(k)], db_terms[static_cast<std::size_t>(k)], l.dy[at]);
      played.each_tap(o, [&](const Items& tap, const Items& item) {
        for (std::int64_t c = 0; c < own; ++c) {
          const auto xi =
              static_cast<std::size_t>(flat(l.items, real(l, item)) * l.channels + k / per * own + c);
          const auto wi = static_cast<std::size_t>((k * l.taps() + flat(l.kernels, tap)) * own + c);
          add(l.y[at], y_terms[at], l.w[wi] * l.x[xi]);
          add(l.dx[xi], dx_terms[xi], l.w[wi] * l.dy[at]);
          add(l.dw[wi], dw_terms[wi], l.x[xi] * l.dy[at]);
        }
      });
    }
  });
  for (const double each : y_terms) l.y_terms = std::max(l.y_terms, each);
  for (const double each : dx_terms) l.dx_terms = std::max(l.dx_terms, each);
  for (const double each : dw_terms) l.dw_terms = std::max(l.dw_terms, each);
  for (const double each : db_terms) l.db_terms = std::max(l.db_terms, each);
}

// The rest of a layer whose shape, windows and cuts are given.
void make(Draw& draw, Layer& l, std::vector<Items> results) {
  for (std::size_t d = 0; d < l.dims; ++d) {
    l.kernels.push_back(l.windows[d].kernel);
    l.results.push_back(l.windows[d].results(l.items[d]));
    l.zeros = l.zeros && l.windows[d].pad == Window::Pad::kZeros;
  }
  Window of_channels;
  of_channels.kind = Window::Kind::kWhole;
  of_channels.length = l.outputs;
  l.all = l.windows;
  l.all.push_back(of_channels);
  Items shape = l.items;
  shape.push_back(l.channels);
  l.cut = *Stencil::make(layout_of(shape, l.cuts, l.lengths), l.all, results);
  l.whole = *Stencil::make(layout_of(shape, Items(l.dims + 1, 1)), l.all);
  l.x = values(draw, product(shape), l.numbers);
  l.w = values(draw, l.outputs * l.taps() * l.own_channels(), l.numbers);
  l.bias = values(draw, l.outputs, l.numbers);
  l.dy = values(draw, product(l.results) * l.outputs, l.numbers);
  compute(l);
}

Layer drawn_layer(std::uint64_t seed) {
  Draw draw(seed);
  Layer l;
  l.numbers = static_cast<Numbers>(draw.among(0, 2));
  l.dims = static_cast<std::size_t>(draw.among(1, 3));
  l.groups = draw.one_in(3) ? draw.among(2, 3) : 1;
  l.channels = l.groups * draw.among(1, l.groups > 1 ? 3 : 9);
  l.outputs = l.groups * draw.among(1, l.groups > 1 ? 3 : 9);
  l.text = fmt::format("seed {}: {} groups, {} channels, {} outputs, numbers {}", seed, l.groups, l.channels,
                       l.outputs, static_cast<int>(l.numbers));
  const std::int64_t longest = l.dims == 1 ? 40 : l.dims == 2 ? 12 : 6;
  Items cuts(l.dims + 1, 1);
  std::map<std::size_t, Items> lengths;
  std::vector<Items> results(l.dims + 1);
  for (std::size_t d = 0; d < l.dims; ++d) {
    l.items.push_back(draw.among(1, longest));
    Window window;
    do window = draw.window(l.items[d]);
    while (window.kind != Window::Kind::kConvolution);
    l.windows.push_back(window);
    l.text += fmt::format("\n  dim {}: {} items; {}", d, l.items[d], window.text());
    if (draw.one_in(4)) continue;
    const std::int64_t most = l.dims == 1 ? 8 : l.dims == 2 ? 4 : 2;
    cuts[d] = std::min(draw.among(2, most), muster::test::kFieldRanks / l.ranks);
    l.ranks *= cuts[d];
    if (cuts[d] == 1) continue;
    if (!draw.one_in(4)) lengths[d] = draw.lengths(l.items[d], cuts[d]);
    if (draw.one_in(3)) results[d] = draw.lengths(window.results(l.items[d]), cuts[d]);
    l.text += fmt::format("; {} ranks [{}] [{}]", cuts[d],
                          lengths.contains(d) ? fmt::format("{}", fmt::join(lengths[d], " ")) : "",
                          fmt::join(results[d], " "));
  }
  l.cuts = cuts;
  l.lengths = lengths;
  make(draw, l, results);
  return l;
}

struct Fixed {
  const char* name;
  Items items;
  std::int64_t channels, outputs, kernel, stride, pad;
  Items cuts;     // ranks along each dim, and 1 for channels
  Items lengths;  // of rows; none: balanced
};
const Fixed kFixed[] = {
    {"even", {24, 20}, 5, 7, 3, 1, 1, {4, 1, 1}, {}},
    {"uneven and strided", {33, 20}, 4, 6, 3, 2, 1, {4, 1, 1}, {9, 12, 7, 5}},
    {"17 and 16 rows", {33, 16}, 16, 16, 3, 2, 1, {2, 1, 1}, {17, 16}},
    {"narrower than its halo", {20, 12}, 3, 8, 7, 1, 3, {4, 1, 1}, {2, 1, 2, 15}},
    {"an empty shard", {20, 12}, 3, 8, 3, 1, 1, {4, 1, 1}, {8, 0, 7, 5}},
    {"both dims", {18, 22}, 6, 4, 3, 1, 1, {2, 2, 1}, {}},
    {"windows over both ends", {2, 3, 6}, 6, 6, 5, 3, 4, {1, 1, 2, 1}, {}},
};
Layer layer_of(const Fixed& c, Numbers numbers, std::uint64_t seed) {
  Draw draw(seed);
  Layer l;
  l.text = c.name;
  l.numbers = numbers;
  l.dims = c.items.size();
  l.items = c.items;
  l.channels = c.channels;
  l.outputs = c.outputs;
  l.windows.assign(l.dims, Window{Window::Kind::kConvolution, c.kernel, c.stride, 1, c.pad, c.pad});
  l.cuts = c.cuts;
  l.ranks = product(c.cuts);
  if (!c.lengths.empty()) l.lengths[0] = c.lengths;
  make(draw, l, std::vector<Items>(l.dims + 1));
  return l;
}

// ---- a rank's part -------------------------------------------------------------------------------

// With all of a layer's arrays at this rank. Gradients are fetched where pads are zeros, else returned.
class Part {
 public:
  Part(Member& of, const Layer& layer, const Stencil& stencil, std::int64_t rank, bool fetches)
      : member(of),
        l(layer),
        mine(*stencil.halo(rank)),
        back(fetches ? *stencil.gradient()->halo(rank) : Halo()),
        fetched(fetches),
        x(of, mine.held, l.dims, l.channels, l.dtype()),
        w(of, line(l.outputs * l.taps() * l.own_channels()), 1, 1, l.dtype()),
        bias(of, line(l.outputs), 1, 1, l.dtype()),
        y(of, mine.results, l.dims, l.outputs, l.dtype()),
        dy(of, fetches ? back.held : mine.results, l.dims, l.outputs, l.dtype()),
        dx(of, fetches ? mine.own : mine.held, l.dims, l.channels, l.dtype()),
        dw(of, line(l.outputs * l.taps() * l.own_channels()), 1, 1, MUSTER_F32),
        db(of, line(l.outputs), 1, 1, MUSTER_F32) {
    for (FieldArray* const array : {&w, &dw}) {
      std::vector<std::int64_t> shape{l.outputs};
      shape.insert(shape.end(), l.kernels.begin(), l.kernels.end());
      shape.push_back(l.own_channels());
      array->view = muster_view(array->view.buffer, 0, array->view.dtype,
                                static_cast<std::int32_t>(shape.size()), shape.data());
    }
    for (FieldArray* const array : {&bias, &db})
      array->view = muster_view(array->view.buffer, 0, array->view.dtype, 1, &l.outputs);
    for (std::int64_t i = 0; i < w.count(); ++i) w.set(i, l.w[static_cast<std::size_t>(i)]);
    for (std::int64_t i = 0; i < bias.count(); ++i) bias.set(i, l.bias[static_cast<std::size_t>(i)]);
    fill();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (const muster_plan plan : plans_) ok(muster_plan_destroy(member.session, plan));
    for (const FieldArray* const array : {&x, &w, &bias, &y, &dy, &dx, &dw, &db})
      ok(muster_buffer_free(member.session, array->view.buffer));
  }

  // Own items have the field's numbers; ghosts have none.
  void fill() {
    each_item(mine.own, [&](const Items& i) {
      for (std::int64_t c = 0; c < l.channels; ++c)
        x.set(i, c, l.x[static_cast<std::size_t>(flat(l.items, i) * l.channels + c)]);
    });
    each_item(mine.results, [&](const Items& o) {
      for (std::int64_t k = 0; k < l.outputs; ++k)
        dy.set(o, k, l.dy[static_cast<std::size_t>(flat(l.results, o) * l.outputs + k)]);
    });
  }
  muster_plan forward(const Box& box) {
    muster_convolution n = numbers(box, mine.held, mine.results);
    return keep(muster_convolution_forward(&n, x.view, w.view, bias.view, y.view));
  }
  muster_plan by_items(const Box& box) {
    muster_convolution n = numbers(box, fetched ? mine.own : mine.held, fetched ? back.held : mine.results);
    return keep(muster_convolution_dgrad(&n, dy.view, w.view, dx.view, 0));
  }
  muster_plan by_weights() {
    muster_convolution n = numbers(mine.results, mine.held, fetched ? back.held : mine.results);
    return keep(muster_convolution_wgrad(&n, dy.view, x.view, dw.view, db.view, 0));
  }
  bool whole_rows() const {
    for (std::size_t d = 1; d < l.dims; ++d)
      if (mine.own.length[d] != l.items[d] || mine.results.length[d] != l.results[d]) return false;
    return true;
  }
  void start(muster_plan plan) {
    const muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_plan_start(member.session, plan, &submit, &done));
    ok(muster_point_wait(member.session, done, -1));
  }

  Member& member;
  const Layer& l;
  Halo mine, back;
  bool fetched;
  FieldArray x, w, bias, y, dy, dx, dw, db;

 private:
  muster_convolution numbers(const Box& box, const Box& x_begins, const Box& y_begins) const {
    muster_convolution n = MUSTER_CONVOLUTION_INIT;
    n.groups = l.groups;
    for (std::size_t d = 0; d < l.dims; ++d) {
      n.stride[d] = l.windows[d].stride;
      n.dilation[d] = l.windows[d].dilation;
      n.before[d] = l.windows[d].before;
      n.x_offset[d] = x_begins.offset[d];
      n.y_offset[d] = y_begins.offset[d];
      n.offset[d] = box.offset[d];
      n.length[d] = box.length[d];
    }
    return n;
  }
  muster_plan keep(const muster_kernel& kernel) {
    ok(muster_plan_kernel(member.session, &kernel, &plans_.emplace_back()));
    return plans_.back();
  }

  std::vector<muster_plan> plans_;
};

// ---- what is expected ----------------------------------------------------------------------------

void expect(const Layer& l, const char* what, const FieldErrors& mine, const FieldErrors& alone) {
  switch (l.numbers) {
    case Numbers::kWhole:
      EXPECT_EQ(mine.unequal, 0) << what << ", off by " << mine.most;
      return;
    case Numbers::kFloats:
      EXPECT_LE(mine.most, 1e-5) << what;
      return;
    case Numbers::kHalves:
      EXPECT_LE(mine.most, 2 * alone.most + 1e-6) << what;
  }
}

// Whole rows give one rank's bits. Where the innermost dim is cut, or there are groups, the library may add
// in another order: its blocks are others, or it takes other code.
void expect_bits(const Part& part, const FieldErrors& y_bits, const FieldErrors& dx_bits) {
  if (part.l.dims == 1 || part.l.groups > 1 || !part.whole_rows()) return;
  EXPECT_EQ(y_bits.unequal, 0) << "forward, of one rank's bits";
  EXPECT_EQ(dx_bits.unequal, 0) << "by items, of one rank's bits";
}

// `alone`: one rank's kernels, of the whole field; none if its array would need ghosts.
void expect_right(const Layer& l, const Part& part, const std::optional<Part>& alone) {
  FieldErrors y, y_alone, y_bits, dx, dx_alone, dx_bits, dw, dw_alone;
  each_item(part.mine.results, [&](const Items& o) {
    for (std::int64_t k = 0; k < l.outputs; ++k) {
      const double right = l.y[static_cast<std::size_t>(flat(l.results, o) * l.outputs + k)];
      y.note(part.y.get(o, k), right, l.y_terms);
      if (!alone) continue;
      y_alone.note(alone->y.get(o, k), right, l.y_terms);
      y_bits.note(part.y.get(o, k), alone->y.get(o, k), 1);
    }
  });
  each_item(part.mine.own, [&](const Items& i) {
    for (std::int64_t c = 0; c < l.channels; ++c) {
      const double right = l.dx[static_cast<std::size_t>(flat(l.items, i) * l.channels + c)];
      dx.note(part.dx.get(i, c), right, l.dx_terms);
      if (!alone) continue;
      dx_alone.note(alone->dx.get(i, c), right, l.dx_terms);
      dx_bits.note(part.dx.get(i, c), alone->dx.get(i, c), 1);
    }
  });
  for (std::int64_t i = 0; i < part.dw.count(); ++i)
    dw.note(part.dw.get(i), l.dw[static_cast<std::size_t>(i)], l.dw_terms);
  for (std::int64_t i = 0; i < part.db.count(); ++i)
    dw.note(part.db.get(i), l.db[static_cast<std::size_t>(i)], l.db_terms);
  if (alone)
    for (std::int64_t i = 0; i < part.dw.count(); ++i)
      dw_alone.note(alone->dw.get(i), l.dw[static_cast<std::size_t>(i)], l.dw_terms);
  if (alone) expect_bits(part, y_bits, dx_bits);
  // Roundings of BF16: each ghost's gradient is added.
  if (!alone) y_alone.most = dx_alone.most = dw_alone.most = 1e-2;
  expect(l, "forward", y, y_alone);
  expect(l, "by items", dx, dx_alone);
  expect(l, "by weights", dw, dw_alone);
}

void Convolved::play(Member& member, const Layer& l) {
  SCOPED_TRACE(l.text);
  constexpr std::size_t kFacesMax = 680;
  for (const Halo& halo : muster::halo::test::halos_of(*l.cut))
    if (halo.gets.size() + halo.gives.size() > kFacesMax) return;
  if (member.rank >= l.ranks) return;
  const muster_group group = group_of(member, l.ranks);
  {
    Part part(member, l, *l.cut, member.rank, l.zeros);
    std::vector<muster_plan> interior{part.forward(part.mine.interior)}, boundary, back_interior,
        back_boundary;
    for (const Box& box : part.mine.boundaries) boundary.push_back(part.forward(box));
    if (l.zeros) {
      back_interior.push_back(part.by_items(part.back.interior));
      for (const Box& box : part.back.boundaries) back_boundary.push_back(part.by_items(box));
    } else {
      back_boundary.push_back(part.by_items(part.mine.held));
    }
    travel(member, group, *l.cut, l.zeros ? MUSTER_HALO_FETCH : MUSTER_HALO_RETURN, part.x,
           l.zeros ? part.dy : part.dx, {interior, boundary}, {back_interior, back_boundary});
    part.start(part.by_weights());
    add_up(member, group, part.dw);
    add_up(member, group, part.db);

    // One rank's kernels, where its array needs no ghosts.
    std::optional<Part> alone;
    if (l.zeros) {
      alone.emplace(member, l, *l.whole, 0, true);
      for (const muster_plan plan :
           {alone->forward(alone->mine.results), alone->by_items(alone->mine.own), alone->by_weights()})
        alone->start(plan);
    }
    expect_right(l, part, alone);
  }
  ok(muster_group_free(member.session, group));
}

// Goal:   random convolutions on real ranks, forward and backward: small integers give the oracle's bits;
//         floats give one rank's bits, forward and by items, and the oracle's values within 1e-5; BF16 is at
//         most twice as far from the oracle as one rank's.
TEST_F(Convolved, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(60);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
      play(member, drawn_layer(seed + 2'000'000));
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    }
    meet_and_leave(member);
  });
}

// Goal:   the same for fields with more channels, with shards that are uneven, empty, or narrower than their
//         halo, and for an operator that a peer gets wrong: stride 2 on 17 and 16 rows.
TEST_F(Convolved, AreWhatOneRankComputesForShapesOfModels) {
  with_ranks(4, [&](Member& member) {
    std::uint64_t seed = 0;
    for (const Fixed& c : kFixed)
      for (const Numbers numbers : {Numbers::kWhole, Numbers::kFloats, Numbers::kHalves}) {
        play(member, layer_of(c, numbers, ++seed));
        ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
      }
    meet_and_leave(member);
  });
}

}  // namespace
