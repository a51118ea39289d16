// Group norm of fields that are cut over ranks, some of which have nothing, held against doubles.
#include "tests/api/client/fields/fields.hpp"

#include <array>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

using muster::Box;
using muster::halo::test::layout_of;
using muster::test::add_up;
using muster::test::Draw;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::FieldErrors;
using muster::test::flat;
using muster::test::group_of;
using muster::test::Items;
using muster::test::line;
using muster::test::Member;
using muster::test::ok;
using muster::test::product;
using muster::test::start;
using muster::test::Stencil;
using muster::test::Window;

constexpr double kEpsilon = 1e-5;

// A field's shape and values, the same at all ranks.
struct Field {
  Items shape;  // samples, rows, columns
  std::int64_t groups = 1, channels = 1, ranks = 1;
  std::vector<Items> lengths;  // of the shards of each dim
  std::string text;
  std::vector<double> w, b;  // none: without weight and bias
  struct Epoch {
    std::vector<double> x, dy;
  };
  std::vector<Epoch> epochs;

  std::int64_t items() const { return shape[1] * shape[2]; }
  double weight(std::size_t channel) const { return w.empty() ? 1 : w[channel]; }
  double bias(std::size_t channel) const { return b.empty() ? 0 : b[channel]; }
};

// Its values lie near a number, and differ by 0.01.
void add_values(Draw& draw, Field& f, double near, bool affine) {
  f.shape.resize(3, 1);
  for (std::size_t d = 0; d < 3; ++d) {
    if (f.lengths.size() == d) f.lengths.push_back({f.shape[d]});
    f.ranks *= static_cast<std::int64_t>(f.lengths[d].size());
  }
  const auto small = [&](std::vector<double>& numbers, std::int64_t count) {
    numbers.resize(static_cast<std::size_t>(count));
    for (double& each : numbers) each = double{static_cast<float>(draw.among(-100, 100)) / 64};
  };
  for (int epoch = 0; epoch < muster::test::kEpochs; ++epoch) {
    Field::Epoch& e = f.epochs.emplace_back();
    e.x.resize(static_cast<std::size_t>(product(f.shape) * f.channels));
    for (double& each : e.x)
      each = double{static_cast<float>(near + static_cast<double>(draw.among(0, 5)) / 100)};
    small(e.dy, product(f.shape) * f.channels);
  }
  if (!affine) return;
  small(f.w, f.channels);
  small(f.b, f.channels);
}

// Half of the fields have values near 10,000.
Field drawn_field(std::uint64_t seed) {
  Draw draw(seed);
  Field f;
  f.shape = {1, draw.among(1, 40), 1};
  f.groups = draw.among(1, 3);
  f.channels = f.groups * draw.among(1, 4);
  f.lengths = {{1}, draw.lengths(f.shape[1], muster::test::kFieldRanks)};
  f.text = fmt::format("seed {}: rows [{}], {} groups, {} channels", seed, fmt::join(f.lengths[1], " "),
                       f.groups, f.channels);
  add_values(draw, f, draw.one_in(2) ? 10'000 : 0, true);
  return f;
}
Field field_of(const Items& shape, const std::vector<Items>& lengths, std::int64_t groups, bool affine) {
  Draw draw(static_cast<std::uint64_t>(groups));
  Field f;
  f.shape = shape;
  f.lengths = lengths;
  f.groups = groups;
  f.channels = 8;
  f.text = fmt::format("[{}], {} groups, {}", fmt::join(shape, " "), groups, affine ? "affine" : "plain");
  add_values(draw, f, 1, affine);
  return f;
}

// The part of a rank.
Box box_of(const Field& f, std::int64_t rank) {
  Items shape = f.shape, cuts;
  std::map<std::size_t, Items> lengths;
  for (std::size_t d = 0; d < 3; ++d) {
    cuts.push_back(static_cast<std::int64_t>(f.lengths[d].size()));
    if (cuts[d] > 1) lengths[d] = f.lengths[d];
  }
  shape.push_back(f.channels);
  cuts.push_back(1);
  return Stencil::make(layout_of(shape, cuts, lengths), std::vector<Window>(4))->halo(rank)->own;
}

// All of a rank's arrays.
struct Part {
  Part(Member& of, const Field& field)
      : member(of),
        f(field),
        own(box_of(field, of.rank)),
        x(of, own, 3, f.channels, MUSTER_F32),
        y(of, own, 3, f.channels, MUSTER_F32),
        dx(of, own, 3, f.channels, MUSTER_F32),
        w(of, line(f.channels), 1, 1, MUSTER_F32),
        b(of, line(f.channels), 1, 1, MUSTER_F32),
        dw(of, line(f.channels), 1, 1, MUSTER_F32),
        db(of, line(f.channels), 1, 1, MUSTER_F32),
        statistics(doubles({own.length[0], f.groups, 3}, 0)),
        gathered(doubles({peers(), own.length[0], f.groups, 3}, 1)),
        merged(doubles({own.length[0], f.groups, 3}, 2)),
        sums(doubles({own.length[0], f.groups, 2}, 3)) {
    for (FieldArray* const array : {&x, &y, &dx}) array->view = array->of_halo();
    for (FieldArray* const array : {&w, &b, &dw, &db})
      array->view = muster_view(array->view.buffer, 0, MUSTER_F32, 1, &f.channels);
    for (std::int64_t c = 0; c < f.channels; ++c) {
      w.set(c, f.weight(static_cast<std::size_t>(c)));
      b.set(c, f.bias(static_cast<std::size_t>(c)));
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (const FieldArray* const array : {&x, &y, &dx, &w, &b, &dw, &db})
      ok(muster_buffer_free(member.session, array->view.buffer));
    for (const muster_buffer buffer : buffers) ok(muster_buffer_free(member.session, buffer));
  }
  void fill(const Field::Epoch& e) {
    each_own([&](const Items& i, std::int64_t c, std::size_t at) {
      x.set(i, c, e.x[at]);
      dx.set(i, c, e.dy[at]);
    });
  }
  // The ranks that have the same samples.
  std::int64_t peers() const { return f.ranks / static_cast<std::int64_t>(f.lengths[0].size()); }
  template<class Visit>
  void each_own(Visit visit) const {
    each_item(own, [&](const Items& i) {
      for (std::int64_t c = 0; c < f.channels; ++c)
        visit(i, c, static_cast<std::size_t>(flat(f.shape, i) * f.channels + c));
    });
  }
  muster_tensor doubles(const std::vector<std::int64_t>& shape, std::size_t number) {
    void* address = nullptr;
    ok(muster_buffer_alloc(member.session, static_cast<std::uint64_t>(product(shape)) * 8 + 8,
                           &buffers[number], &address));
    return muster_view(buffers[number], 0, MUSTER_F64, static_cast<std::int32_t>(shape.size()), shape.data());
  }

  Member& member;
  const Field& f;
  std::array<muster_buffer, 4> buffers{};
  Box own;
  FieldArray x, y, dx, w, b, dw, db;  // dx begins as dy
  muster_tensor statistics, gathered, merged, sums;
};

// The formula gives these numbers for one sample and group.
struct Formula {
  Formula(const Field& f, const Field::Epoch& e, std::int64_t sample, std::int64_t group) {
    const std::int64_t per = f.channels / f.groups, first = sample * f.items() * f.channels;
    const auto each = [&](auto visit) {
      for (std::int64_t i = 0; i < f.items(); ++i)
        for (std::int64_t c = group * per; c < (group + 1) * per; ++c)
          visit(static_cast<std::size_t>(first + i * f.channels + c), static_cast<std::size_t>(c));
    };
    const auto count = static_cast<double>(f.items() * per);
    double square = 0;
    each([&](std::size_t i, std::size_t) { mean += e.x[i] / count; });
    each([&](std::size_t i, std::size_t) { square += (e.x[i] - mean) * (e.x[i] - mean) / count; });
    rstd = 1 / std::sqrt(square + kEpsilon);
    each([&](std::size_t i, std::size_t c) {
      of_dy += e.dy[i] * f.weight(c) / count;
      of_both += e.dy[i] * f.weight(c) * (e.x[i] - mean) * rstd / count;
    });
  }
  double mean = 0, rstd = 0, of_dy = 0, of_both = 0;
};

// Holds what the ranks have against the formula.
void expect_right(const Field::Epoch& e, const Part& part) {
  const Field& f = part.f;
  const std::int64_t per = f.channels / f.groups;
  std::vector<Formula> formulas;
  for (std::int64_t sample = 0; sample < f.shape[0]; ++sample)
    for (std::int64_t group = 0; group < f.groups; ++group) formulas.emplace_back(f, e, sample, group);
  const auto formula = [&](std::int64_t sample, std::int64_t channel) -> const Formula& {
    return formulas[static_cast<std::size_t>(sample * f.groups + channel / per)];
  };
  FieldErrors y, dx, dw;
  part.each_own([&](const Items& i, std::int64_t c, std::size_t at) {
    const Formula& of = formula(i[0], c);
    const auto channel = static_cast<std::size_t>(c);
    const double normal = (e.x[at] - of.mean) * of.rstd;
    y.note(part.y.get(i, c), normal * f.weight(channel) + f.bias(channel), 2);
    dx.note(part.dx.get(i, c), of.rstd * (e.dy[at] * f.weight(channel) - of.of_dy - normal * of.of_both),
            2 * of.rstd);
  });
  std::vector<double> right_dw(static_cast<std::size_t>(f.channels)), right_db(right_dw.size());
  for (std::size_t at = 0; at < e.x.size(); ++at) {
    const auto channel = static_cast<std::int64_t>(at) % f.channels;
    const Formula& of = formula(static_cast<std::int64_t>(at) / (f.items() * f.channels), channel);
    right_dw[static_cast<std::size_t>(channel)] += e.dy[at] * (e.x[at] - of.mean) * of.rstd;
    right_db[static_cast<std::size_t>(channel)] += e.dy[at];
  }
  const auto terms = static_cast<double>(2 * f.shape[0] * f.items());
  for (std::int64_t c = 0; c < f.channels && !f.w.empty(); ++c) {
    dw.note(part.dw.get(c), right_dw[static_cast<std::size_t>(c)], terms);
    dw.note(part.db.get(c), right_db[static_cast<std::size_t>(c)], terms);
  }
  EXPECT_LE(y.most, 1e-5) << "forward";
  EXPECT_LE(dx.most, 1e-5) << "by items";
  EXPECT_LE(dw.most, 1e-5) << "by weights";
}

class Normalised : public muster::test::Fields<Field> {
 protected:
  static void play(Member& member, const Field& f) {
    SCOPED_TRACE(f.text);
    if (member.rank >= f.ranks) return;
    const muster_group all = group_of(member, f.ranks);
    Part part(member, f);
    std::vector<std::int32_t> same(static_cast<std::size_t>(part.peers()));
    std::iota(same.begin(), same.end(), static_cast<std::int32_t>(member.rank / part.peers() * part.peers()));
    muster_group group = all;
    ok(muster_group_make(member.session, same.data(), same.size(), "samples", &group));
    muster::test::Late late(81, member.rank);
    for (const Field::Epoch& e : f.epochs) {
      part.fill(e);
      late.maybe();
      pass(member, part, group);
      if (!f.w.empty()) {
        add_up(member, all, part.dw);
        add_up(member, all, part.db);
      }
      expect_right(e, part);
    }
    ok(muster_group_free(member.session, group));
    ok(muster_group_free(member.session, all));
  }
  // Forward and backward, up to the sums over all ranks.
  static void pass(Member& member, Part& part, muster_group group) {
    const bool affine = !part.f.w.empty();
    const muster_tensor none = muster_none();
    const muster_tensor w = affine ? part.w.view : none, b = affine ? part.b.view : none,
                        dw = affine ? part.dw.view : none, db = affine ? part.db.view : none;
    start(member, muster_group_norm_statistics(part.x.view, part.statistics));
    muster_collective meet = MUSTER_COLLECTIVE_INIT;
    meet.op = MUSTER_ALL_GATHER;
    meet.group = group;
    meet.dtype = MUSTER_F64;
    meet.source.buffer = part.statistics.buffer;
    meet.target.buffer = part.gathered.buffer;
    meet.count = static_cast<std::uint64_t>(3 * part.own.length[0] * part.f.groups);
    ASSERT_EQ(member.run(meet), MUSTER_OK) << member.error;
    start(member, muster_group_norm_merge(part.gathered, part.merged, kEpsilon));
    start(member, muster_group_norm_forward(part.x.view, part.merged, w, b, part.y.view));
    start(member,
          muster_group_norm_backward_sums(part.dx.view, part.x.view, part.merged, w, part.sums, dw, db, 0));
    add_up(member, group, part.sums, 2 * part.own.length[0] * part.f.groups);
    start(member,
          muster_group_norm_backward(part.dx.view, part.x.view, part.merged, w, part.sums, part.dx.view));
  }
};

TEST_F(Normalised, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(20);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    bool all_well = true;
    for (std::uint64_t seed = 0; seed < cases && all_well; ++seed)
      all_well = share(
          member, [&] { return drawn_field(seed + 3'000'000); }, [&](const Field& f) { play(member, f); });
    meet_and_leave(member);
  });
}

// Goal:   G1 of the catalogue: 257 rows of two samples over 2, 4 and 8 ranks, one group and four, with weight
//         and bias and without.
TEST_F(Normalised, OfManyRowsAreWhatOneRankComputes) {
  const Items rows[] = {{129, 128}, {65, 64, 64, 64}, {33, 32, 32, 32, 32, 32, 32, 32}};
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    for (const Items& lengths : rows)
      for (const std::int64_t groups : {1, 4})
        for (const bool affine : {true, false})
          share(
              member,
              [&] {
                return field_of({2, 257, 5}, {{2}, lengths}, groups, affine);
              },
              [&](const Field& f) { play(member, f); });
    meet_and_leave(member);
  });
}

// Goal:   G3: rows and columns are cut over a mesh of two axes, or samples are, which do not mix.
TEST_F(Normalised, OverTwoAxesDoNotMixSamples) {
  const Field fields[] = {field_of({2, 9, 7}, {{2}, {4, 5}, {7, 0}}, 4, true),
                          field_of({5, 9, 3}, {{3, 2}, {8, 1}}, 4, true),
                          field_of({5, 4, 3}, {{1, 0, 3, 1}, {4}}, 2, false)};
  with_ranks(4, [&](Member& member) {
    for (const Field& f : fields) {
      play(member, f);
      await_all(member);
    }
    meet_and_leave(member);
  });
}

}  // namespace
