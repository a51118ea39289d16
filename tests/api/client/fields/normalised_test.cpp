// Group norm of a field whose items lie in a row over ranks, some without any, held against doubles.
#include "tests/api/client/fields/fields.hpp"

#include <array>

namespace {

using muster::Box;
using muster::test::Draw;
using muster::test::FieldArray;
using muster::test::FieldErrors;
using muster::test::Items;
using muster::test::line;
using muster::test::Member;
using muster::test::ok;
using muster::test::product;

constexpr double kEpsilon = 1e-5;

// A field's values, the same at all ranks. Half of the fields have values near 10,000 that differ by 0.01.
struct Field {
  explicit Field(std::uint64_t seed) {
    Draw draw(seed);
    items = draw.among(1, 40);
    groups = draw.among(1, 3);
    channels = groups * draw.among(1, 4);
    lengths = draw.lengths(items, muster::test::kFieldRanks);
    text = fmt::format("seed {}: {} items [{}], {} groups, {} channels", seed, items, fmt::join(lengths, " "),
                       groups, channels);
    const double near = draw.one_in(2) ? 10'000 : 0;
    x.resize(static_cast<std::size_t>(items * channels));
    dy.resize(x.size());
    w.resize(static_cast<std::size_t>(channels));
    b.resize(w.size());
    for (double& each : x)
      each = double{static_cast<float>(near + static_cast<double>(draw.among(0, 5)) / 100)};
    for (std::vector<double>* const of : {&dy, &w, &b})
      for (double& each : *of) each = double{static_cast<float>(draw.among(-100, 100)) / 64};
  }
  std::int64_t items = 0, groups = 0, channels = 0;
  Items lengths;
  std::string text;
  std::vector<double> x, dy, w, b;
};

// A rank's part of it.
struct Part {
  Part(Member& of, const Field& field)
      : member(of),
        f(field),
        own(own_of(field, of.rank)),
        x(of, own, 1, f.channels, MUSTER_F32),
        y(of, own, 1, f.channels, MUSTER_F32),
        dx(of, own, 1, f.channels, MUSTER_F32),
        w(of, line(f.channels), 1, 1, MUSTER_F32),
        b(of, line(f.channels), 1, 1, MUSTER_F32),
        dw(of, line(f.channels), 1, 1, MUSTER_F32),
        db(of, line(f.channels), 1, 1, MUSTER_F32),
        statistics(doubles({1, f.groups, 3}, 0)),
        gathered(doubles({muster::test::kFieldRanks, 1, f.groups, 3}, 1)),
        merged(doubles({1, f.groups, 3}, 2)),
        sums(doubles({1, f.groups, 2}, 3)) {
    for (FieldArray* const array : {&w, &b, &dw, &db})
      array->view = muster_view(array->view.buffer, 0, MUSTER_F32, 1, &f.channels);
    for (std::int64_t c = 0; c < f.channels; ++c) {
      w.set(c, f.w[static_cast<std::size_t>(c)]);
      b.set(c, f.b[static_cast<std::size_t>(c)]);
    }
    for (std::int64_t i = 0; i < x.count(); ++i) {
      x.set(i, f.x[static_cast<std::size_t>(first() + i)]);
      dx.set(i, f.dy[static_cast<std::size_t>(first() + i)]);
    }
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (const FieldArray* const array : {&x, &y, &dx, &w, &b, &dw, &db})
      ok(muster_buffer_free(member.session, array->view.buffer));
    for (const muster_buffer buffer : buffers) ok(muster_buffer_free(member.session, buffer));
  }
  static Box own_of(const Field& f, int rank) {
    Box own = line(f.lengths[static_cast<std::size_t>(rank)]);
    for (int r = 0; r < rank; ++r) own.offset[0] += f.lengths[static_cast<std::size_t>(r)];
    return own;
  }
  std::int64_t first() const { return own.offset[0] * f.channels; }
  muster_tensor doubles(const std::vector<std::int64_t>& shape, std::size_t number) {
    void* address = nullptr;
    ok(muster_buffer_alloc(member.session, static_cast<std::uint64_t>(product(shape)) * 8, &buffers[number],
                           &address));
    return muster_view(buffers[number], 0, MUSTER_F64, static_cast<std::int32_t>(shape.size()), shape.data());
  }

  Member& member;
  const Field& f;
  std::array<muster_buffer, 4> buffers{};
  Box own;
  FieldArray x, y, dx, w, b, dw, db;  // dx begins as dy
  muster_tensor statistics, gathered, merged, sums;
};

// Holds what the ranks have of one group against the formula.
void expect_group(const Field& f, const Part& part, std::int64_t group) {
  const std::int64_t per = f.channels / f.groups;
  const auto each = [&](auto visit) {
    for (std::int64_t i = 0; i < f.items; ++i)
      for (std::int64_t c = group * per; c < (group + 1) * per; ++c)
        visit(static_cast<std::size_t>(i * f.channels + c), static_cast<std::size_t>(c));
  };
  const auto count = static_cast<double>(f.items * per);
  double mean = 0, square = 0, of_dy = 0, of_both = 0;
  each([&](std::size_t i, std::size_t) { mean += f.x[i] / count; });
  each([&](std::size_t i, std::size_t) { square += (f.x[i] - mean) * (f.x[i] - mean) / count; });
  const double rstd = 1 / std::sqrt(square + kEpsilon);
  each([&](std::size_t i, std::size_t c) {
    of_dy += f.dy[i] * f.w[c] / count;
    of_both += f.dy[i] * f.w[c] * (f.x[i] - mean) * rstd / count;
  });
  FieldErrors y, dx, dw;
  std::vector<double> right_dw(f.w.size()), right_db(f.w.size());
  each([&](std::size_t i, std::size_t c) {
    const double normal = (f.x[i] - mean) * rstd;
    right_dw[c] += f.dy[i] * normal;
    right_db[c] += f.dy[i];
    const std::int64_t at = static_cast<std::int64_t>(i) - part.first();
    if (at < 0 || at >= part.x.count()) return;
    y.note(part.y.get(at), normal * f.w[c] + f.b[c], 2);
    dx.note(part.dx.get(at), rstd * (f.dy[i] * f.w[c] - of_dy - normal * of_both), 2 * rstd);
  });
  for (std::int64_t c = group * per; c < (group + 1) * per; ++c) {
    dw.note(part.dw.get(c), right_dw[static_cast<std::size_t>(c)], 2 * static_cast<double>(f.items));
    dw.note(part.db.get(c), right_db[static_cast<std::size_t>(c)], 2 * static_cast<double>(f.items));
  }
  EXPECT_LE(y.most, 1e-5) << "forward, group " << group;
  EXPECT_LE(dx.most, 1e-5) << "by items, group " << group;
  EXPECT_LE(dw.most, 1e-5) << "by weights, group " << group;
}

class Normalised : public muster::test::Fields {
 protected:
  static void play(Member& member, std::uint64_t seed) {
    const Field f(seed);
    SCOPED_TRACE(f.text);
    Part part(member, f);
    start(member, muster_group_norm_statistics(part.x.view, part.statistics));
    muster_collective meet = MUSTER_COLLECTIVE_INIT;
    meet.op = MUSTER_ALL_GATHER;
    meet.group = member.group;
    meet.dtype = MUSTER_F64;
    meet.source.buffer = part.statistics.buffer;
    meet.target.buffer = part.gathered.buffer;
    meet.count = static_cast<std::uint64_t>(3 * f.groups);
    ASSERT_EQ(member.run(meet), MUSTER_OK) << member.error;
    start(member, muster_group_norm_merge(part.gathered, part.merged, kEpsilon));
    start(member, muster_group_norm_forward(part.x.view, part.merged, part.w.view, part.b.view, part.y.view));
    start(member, muster_group_norm_backward_sums(part.dx.view, part.x.view, part.merged, part.w.view,
                                                  part.sums, part.dw.view, part.db.view, 0));
    meet.op = MUSTER_ALL_REDUCE;
    meet.redop = MUSTER_SUM;
    meet.source.buffer = meet.target.buffer = part.sums.buffer;
    meet.count = static_cast<std::uint64_t>(2 * f.groups);
    ASSERT_EQ(member.run(meet), MUSTER_OK) << member.error;
    start(member, muster_group_norm_backward(part.dx.view, part.x.view, part.merged, part.w.view, part.sums,
                                             part.dx.view));
    add_up(member, member.group, part.dw);
    add_up(member, member.group, part.db);
    for (std::int64_t group = 0; group < f.groups; ++group) expect_group(f, part, group);
  }
};

TEST_F(Normalised, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(20);
  with_ranks(muster::test::kFieldRanks, [&](Member& member) {
    for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
      play(member, seed + 3'000'000);
      await_all(member);
    }
    meet_and_leave(member);
  });
}

}  // namespace
