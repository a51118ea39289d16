#include "tests/api/client/fields/layer.hpp"

namespace muster::test {

using halo::test::layout_of;
using halo::test::Played;

namespace {

constexpr double kOverwritten = 1e30;
constexpr std::size_t kFacesMax = 680;
constexpr double kRoundings = 1e-2;  // of BF16: each ghost's gradient is added

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

double most(const std::vector<double>& terms) {
  double found = 1e-30;
  for (const double each : terms) found = std::max(found, each);
  return found;
}

std::size_t place(const Items& shape, const Items& at, std::int64_t channels, std::int64_t channel) {
  return static_cast<std::size_t>(flat(shape, at) * channels + channel);
}

}  // namespace

void compute(const Layer& l, LayerEpoch& e) {
  const Played played(l.windows, l.items, Grid(l.kernels));
  const std::int64_t per = l.outputs / l.groups, own = l.own_channels();
  e.y.assign(static_cast<std::size_t>(product(l.results) * l.outputs), 0);
  e.dx.assign(e.x.size(), 0);
  e.dw.assign(l.w.size(), 0);
  e.db.assign(l.bias.size(), 0);
  std::vector<double> y_terms(e.y.size()), dx_terms(e.dx.size()), dw_terms(e.dw.size()),
      db_terms(e.db.size());
  const auto add = [](double& to, double& terms, double term) {
    to += term;
    terms += std::abs(term);
  };
  Grid::each(l.results, [&](const Items& o) {
    for (std::int64_t k = 0; k < l.outputs; ++k) {
      const std::size_t at = place(l.results, o, l.outputs, k);
      add(e.y[at], y_terms[at], l.bias[static_cast<std::size_t>(k)]);
      add(e.db[static_cast<std::size_t>(k)], db_terms[static_cast<std::size_t>(k)], e.dy[at]);
      played.each_tap(o, [&](const Items& tap, const Items& item) {
        const std::size_t x = place(l.items, real(l, item), l.channels, k / per * own);
        const auto w = static_cast<std::size_t>((k * l.taps() + flat(l.kernels, tap)) * own);
        for (std::size_t c = 0; c < static_cast<std::size_t>(own); ++c) {
          add(e.y[at], y_terms[at], l.w[w + c] * e.x[x + c]);
          add(e.dx[x + c], dx_terms[x + c], l.w[w + c] * e.dy[at]);
          add(e.dw[w + c], dw_terms[w + c], e.x[x + c] * e.dy[at]);
        }
      });
    }
  });
  e.y_terms = most(y_terms);
  e.dx_terms = most(dx_terms);
  e.dw_terms = most(dw_terms);
  e.db_terms = most(db_terms);
}

void make(Draw& draw, Layer& l, const std::vector<Items>& results) {
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
  l.w = values(draw, l.outputs * l.taps() * l.own_channels(), l.numbers);
  l.bias = values(draw, l.outputs, l.numbers);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    LayerEpoch& e = l.epochs.emplace_back();
    e.x = values(draw, product(shape), l.numbers);
    e.dy = values(draw, product(l.results) * l.outputs, l.numbers);
    compute(l, e);
  }
}

Layer layer_of(const char* name, const Items& items, const Window& window, const std::vector<Items>& lengths,
               Numbers numbers, std::uint64_t seed, std::int64_t channels, std::int64_t outputs) {
  Draw draw(seed);
  Layer l;
  l.text = name;
  l.numbers = numbers;
  l.dims = items.size();
  l.items = items;
  l.channels = channels;
  l.outputs = outputs;
  l.windows.assign(l.dims, window);
  l.cuts.assign(l.dims + 1, 1);
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    if (lengths[d].empty()) continue;
    l.cuts[d] = static_cast<std::int64_t>(lengths[d].size());
    if (l.cuts[d] > 1) l.lengths[d] = lengths[d];
  }
  l.ranks = product(l.cuts);
  make(draw, l, std::vector<Items>(l.dims + 1));
  return l;
}

// ---- a rank's part -------------------------------------------------------------------------------

LayerPart::LayerPart(Member& of, const Layer& layer, const Stencil& with, std::int64_t rank,
                     muster_halo_gradients gradients, muster_corners by)
    : member(of),
      l(layer),
      stencil(with),
      how(gradients),
      corners(by),
      mine(*stencil.halo(rank, static_cast<halo::Corners>(by))),
      back(fetched() ? *stencil.gradient()->halo(rank, static_cast<halo::Corners>(by)) : Halo()),
      x(of, mine.held, l.dims, l.channels, l.dtype()),
      w(of, line(l.outputs * l.taps() * l.own_channels()), 1, 1, l.dtype()),
      bias(of, line(l.outputs), 1, 1, l.dtype()),
      y(of, mine.results, l.dims, l.outputs, l.dtype()),
      dy(of, fetched() ? back.held : mine.results, l.dims, l.outputs, l.dtype()),
      dx(of, fetched() ? mine.own : mine.held, l.dims, l.channels, l.dtype()),
      dw(of, line(l.outputs * l.taps() * l.own_channels()), 1, 1, MUSTER_F32),
      db(of, line(l.outputs), 1, 1, MUSTER_F32) {
  for (FieldArray* const array : {&w, &dw}) {
    std::vector<std::int64_t> shape{l.outputs};
    shape.insert(shape.end(), l.kernels.begin() + (l.batched ? 1 : 0), l.kernels.end());
    shape.push_back(l.own_channels());
    array->view = muster_view(array->view.buffer, 0, array->view.dtype,
                              static_cast<std::int32_t>(shape.size()), shape.data());
  }
  for (FieldArray* const array : {&bias, &db})
    array->view = muster_view(array->view.buffer, 0, array->view.dtype, 1, &l.outputs);
  for (std::int64_t i = 0; i < w.count(); ++i) w.set(i, l.w[static_cast<std::size_t>(i)]);
  for (std::int64_t i = 0; i < bias.count(); ++i) bias.set(i, l.bias[static_cast<std::size_t>(i)]);
}

LayerPart::~LayerPart() {
  for (const muster_plan plan : plans_) ok(muster_plan_destroy(member.session, plan));
  for (const FieldArray* const array : {&x, &w, &bias, &y, &dy, &dx, &dw, &db})
    ok(muster_buffer_free(member.session, array->view.buffer));
}

void LayerPart::fill(const LayerEpoch& e) {
  x.fill(kNothing);
  dy.fill(kNothing);
  each_item(mine.own, [&](const Items& i) {
    for (std::int64_t c = 0; c < l.channels; ++c) x.set(i, c, e.x[place(l.items, i, l.channels, c)]);
  });
  each_item(mine.results, [&](const Items& o) {
    for (std::int64_t k = 0; k < l.outputs; ++k) dy.set(o, k, e.dy[place(l.results, o, l.outputs, k)]);
  });
}

muster_plan LayerPart::forward(const Box& box) {
  const muster_convolution n = numbers(box, mine.held, mine.results);
  return keep(muster_convolution_forward(&n, seen(x), w.view, bias.view, seen(y)));
}
muster_plan LayerPart::by_items(const Box& box) {
  const muster_convolution n =
      numbers(box, fetched() ? mine.own : mine.held, fetched() ? back.held : mine.results);
  return keep(muster_convolution_dgrad(&n, seen(dy), w.view, seen(dx), 0));
}
muster_plan LayerPart::by_weights() {
  const muster_convolution n = numbers(mine.results, mine.held, fetched() ? back.held : mine.results);
  return keep(muster_convolution_wgrad(&n, seen(dy), seen(x), dw.view, db.view, 0));
}

HaloParts LayerPart::halo() {
  HaloParts parts{stencil, corners, how, x.of_halo(), (fetched() ? dy : dx).of_halo(), {}, {}};
  parts.forward.interior = {forward(mine.interior)};
  for (const Box& box : mine.boundaries) parts.forward.boundary.push_back(forward(box));
  if (fetched()) {
    parts.backward.interior = {by_items(back.interior)};
    for (const Box& box : back.boundaries) parts.backward.boundary.push_back(by_items(box));
  } else {
    parts.backward.boundary = {by_items(mine.held)};
  }
  return parts;
}

void LayerPart::let_go() {
  for (const muster_plan plan : plans_) ok(muster_plan_destroy(member.session, plan));
  plans_.clear();
}

bool LayerPart::whole_rows() const {
  for (std::size_t d = 1; d < l.dims; ++d)
    if (mine.own.length[d] != l.items[d] || mine.results.length[d] != l.results[d]) return false;
  return true;
}

std::vector<double> LayerPart::own_results() const {
  std::vector<double> all;
  for (std::int64_t i = 0; i < y.count(); ++i) all.push_back(y.get(i));
  return all;
}
std::vector<double> LayerPart::own_gradients() const {
  std::vector<double> all;
  each_item(mine.own, [&](const Items& i) {
    for (std::int64_t c = 0; c < l.channels; ++c) all.push_back(dx.get(i, c));
  });
  return all;
}

muster_convolution LayerPart::numbers(const Box& box, const Box& x_begins, const Box& y_begins) const {
  muster_convolution n = MUSTER_CONVOLUTION_INIT;
  n.groups = l.groups;
  for (std::size_t d = l.batched ? 1 : 0, k = 0; d < l.dims; ++d, ++k) {
    n.stride[k] = l.windows[d].stride;
    n.dilation[k] = l.windows[d].dilation;
    n.before[k] = l.windows[d].before;
    n.x_offset[k] = x_begins.offset[d];
    n.y_offset[k] = y_begins.offset[d];
    n.offset[k] = box.offset[d];
    n.length[k] = box.length[d];
  }
  return n;
}

muster_plan LayerPart::keep(const muster_kernel& kernel) {
  ok(muster_plan_kernel(member.session, &kernel, &plans_.emplace_back()));
  return plans_.back();
}

// ---- what is expected ----------------------------------------------------------------------------

namespace {

void expect(Numbers numbers, const char* what, const FieldErrors& mine, const FieldErrors& alone) {
  switch (numbers) {
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
void expect_bits(const LayerPart& part, const FieldErrors& y_bits, const FieldErrors& dx_bits) {
  if (part.l.dims == 1 || part.l.batched || part.l.groups > 1 || !part.whole_rows()) return;
  EXPECT_EQ(y_bits.unequal, 0) << "forward, of one rank's bits";
  if (part.fetched()) EXPECT_EQ(dx_bits.unequal, 0) << "by items, of one rank's bits";
}

}  // namespace

void expect_right(const LayerEpoch& e, const LayerPart& part, const LayerPart* alone) {
  const Layer& l = part.l;
  FieldErrors y, y_alone, y_bits, dx, dx_alone, dx_bits;
  each_item(part.mine.results, [&](const Items& o) {
    for (std::int64_t k = 0; k < l.outputs; ++k) {
      const double right = e.y[place(l.results, o, l.outputs, k)];
      y.note(part.y.get(o, k), right, e.y_terms);
      if (alone == nullptr) continue;
      y_alone.note(alone->y.get(o, k), right, e.y_terms);
      y_bits.note(part.y.get(o, k), alone->y.get(o, k), 1);
    }
  });
  each_item(part.mine.own, [&](const Items& i) {
    for (std::int64_t c = 0; c < l.channels; ++c) {
      const double right = e.dx[place(l.items, i, l.channels, c)];
      dx.note(part.dx.get(i, c), right, e.dx_terms);
      if (alone == nullptr) continue;
      dx_alone.note(alone->dx.get(i, c), right, e.dx_terms);
      dx_bits.note(part.dx.get(i, c), alone->dx.get(i, c), 1);
    }
  });
  if (alone != nullptr) expect_bits(part, y_bits, dx_bits);
  if (alone == nullptr) y_alone.most = dx_alone.most = kRoundings;
  expect(l.numbers, "forward", y, y_alone);
  expect(l.numbers, "by items", dx, dx_alone);
}

void expect_right_sums(const LayerEpoch& e, const LayerPart& part, const LayerPart* alone) {
  FieldErrors dw, dw_alone, db;
  for (std::int64_t i = 0; i < part.dw.count(); ++i) {
    const double right = e.dw[static_cast<std::size_t>(i)];
    dw.note(part.dw.get(i), right, e.dw_terms);
    if (alone != nullptr) dw_alone.note(alone->dw.get(i), right, e.dw_terms);
  }
  for (std::int64_t i = 0; i < part.db.count(); ++i)
    db.note(part.db.get(i), e.db[static_cast<std::size_t>(i)], e.db_terms);
  if (alone == nullptr) dw_alone.most = kRoundings;
  expect(part.l.numbers, "by weights", dw, dw_alone);
  expect(part.l.numbers, "by bias", db, dw_alone);
}

// ---- epochs --------------------------------------------------------------------------------------

void run_epochs(Member& member, muster_group group, std::int64_t rank, const Layer& l, Alone alone,
                std::uint64_t seed, LayerWay way) {
  SCOPED_TRACE(l.text);
  const muster_halo_gradients how = way.how.value_or(l.zeros ? MUSTER_HALO_FETCH : MUSTER_HALO_RETURN);
  LayerPart part(member, l, *l.cut, rank, how, way.corners);
  HaloSet halos(member, group);
  halos.add(part.halo());
  const muster_plan by_weights = part.by_weights();
  // One rank's kernels need an array without ghosts.
  std::optional<LayerPart> single;
  std::vector<muster_plan> of_single;
  if (alone == Alone::kToo && l.zeros) {
    single.emplace(member, l, *l.whole, 0, MUSTER_HALO_FETCH);
    of_single = {single->forward(single->mine.results), single->by_items(single->mine.own),
                 single->by_weights()};
  }
  Late late(seed, member.rank);
  for (const LayerEpoch& e : l.epochs) {
    part.fill(e);
    part.y.fill(kNothing);
    part.dx.fill(kNothing);
    late.maybe();
    halos.forward();
    start(member, by_weights);
    part.x.fill(kOverwritten);
    late.maybe();
    halos.backward();
    part.dy.fill(kOverwritten);
    add_up(member, group, part.dw);
    add_up(member, group, part.db);
    if (single) {
      single->fill(e);
      for (const muster_plan plan : of_single) start(member, plan);
    }
    expect_right(e, part, single ? &*single : nullptr);
    expect_right_sums(e, part, single ? &*single : nullptr);
    part.dx.fill(kOverwritten);
  }
}

void run_epochs(Member& member, const Layer& l, Alone alone, std::uint64_t seed, LayerWay way) {
  for (const Halo& halo : halo::test::halos_of(*l.cut))
    if (halo.gets.size() + halo.gives.size() > kFacesMax) return;
  if (member.rank >= l.ranks) return;
  const muster_group group = group_of(member, l.ranks);
  run_epochs(member, group, member.rank, l, alone, seed, way);
  ok(muster_group_free(member.session, group));
}

}  // namespace muster::test
