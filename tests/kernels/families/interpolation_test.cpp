#include "kernels/interpolation/interpolation.hpp"

#include "api/base/halo/stencil.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using halo::Window;
using Kind = Window::Kind;

const Kernel& row(std::int32_t op) {
  return row_of(interpolation::rows(), op);
}

struct Sizes {
  std::int64_t items, results;
  double scale = 0;
};

// How much result o takes of item i, by the formulas of PyTorch's Upsample, in double and on their own.
double weight_of(Kind kind, const Sizes& s, std::int64_t results, std::int64_t o, std::int64_t i) {
  const double ratio =
      s.scale != 0 ? 1 / s.scale : static_cast<double>(s.items) / static_cast<double>(results);
  const double at = static_cast<double>(o), last = static_cast<double>(s.items - 1);
  double source = 0;
  if (kind == Kind::kNearest)
    return std::min(std::floor(at * ratio + 1e-9), last) == static_cast<double>(i) ? 1 : 0;
  if (kind == Kind::kNearestExact)
    return std::min(std::floor((at + 0.5) * ratio + 1e-9), last) == static_cast<double>(i) ? 1 : 0;
  if (kind == Kind::kLinear) source = std::max(0.0, (at + 0.5) * ratio - 0.5);
  if (kind == Kind::kLinearAligned) source = results == 1 ? 0 : at * last / static_cast<double>(results - 1);
  source = std::min(source, last);
  return std::max(0.0, 1 - std::abs(source - static_cast<double>(i)));
}

// A field of one or two spatial dims and `channels`, in one sample.
struct Played {
  Kind kind;
  std::vector<Sizes> dims;
  std::int64_t channels;

  std::int64_t results(std::size_t d) const {
    return dims[d].scale != 0 ? static_cast<std::int64_t>(static_cast<double>(dims[d].items) * dims[d].scale)
                              : dims[d].results;
  }
  std::int64_t points(bool of_results) const {
    std::int64_t all = 1;
    for (std::size_t d = 0; d < dims.size(); ++d) all *= of_results ? results(d) : dims[d].items;
    return all;
  }
  // The weight of a whole field's item in a result.
  double weight(std::int64_t result, std::int64_t item) const {
    double weight = 1;
    for (std::size_t d = dims.size(); d-- > 0;) {
      weight *= weight_of(kind, dims[d], results(d), result % results(d), item % dims[d].items);
      result /= results(d);
      item /= dims[d].items;
    }
    return weight;
  }
  Values forward(const Values& x) const {
    Values y(static_cast<std::size_t>(points(true) * channels), 0.0);
    for (std::int64_t o = 0; o < points(true); ++o)
      for (std::int64_t i = 0; i < points(false); ++i)
        if (const double w = weight(o, i); w != 0)
          for (std::int64_t c = 0; c < channels; ++c)
            y[static_cast<std::size_t>(o * channels + c)] +=
                w * x[static_cast<std::size_t>(i * channels + c)];
    return y;
  }
  Values backward(const Values& dy) const {
    Values dx(static_cast<std::size_t>(points(false) * channels), 0.0);
    for (std::int64_t o = 0; o < points(true); ++o)
      for (std::int64_t i = 0; i < points(false); ++i)
        if (const double w = weight(o, i); w != 0)
          for (std::int64_t c = 0; c < channels; ++c)
            dx[static_cast<std::size_t>(i * channels + c)] +=
                w * dy[static_cast<std::size_t>(o * channels + c)];
    return dx;
  }
  // Arguments for some rows of x and of y, and a box of rows.
  Args args(const Tensor& from, const Tensor& to, std::pair<std::int64_t, std::int64_t> x,
            std::pair<std::int64_t, std::int64_t> y, std::pair<std::int64_t, std::int64_t> box,
            bool boxes_results, int accumulate) const {
    Args args = args_of({from, to});
    args.ints = {static_cast<std::int64_t>(kind), accumulate};
    const auto list = [&](auto of) {
      for (std::size_t d = 0; d < 3; ++d) args.ints.push_back(d < dims.size() ? of(d) : 0);
    };
    list([&](std::size_t d) { return dims[d].items; });
    list([&](std::size_t d) { return dims[d].scale != 0 ? 0 : dims[d].results; });
    list([&](std::size_t d) { return d == 0 ? x.first : 0; });
    list([&](std::size_t d) { return d == 0 ? y.first : 0; });
    list([&](std::size_t d) { return d == 0 ? box.first : 0; });
    list([&](std::size_t d) {
      return d == 0 ? box.second - box.first : boxes_results ? results(d) : dims[d].items;
    });
    for (std::size_t d = 0; d < 3; ++d) args.reals.push_back(d < dims.size() ? dims[d].scale : 0.0);
    return args;
  }
  Shape shape(std::pair<std::int64_t, std::int64_t> rows, bool of_results) const {
    Shape shape{1, rows.second - rows.first};
    for (std::size_t d = 1; d < dims.size(); ++d) shape.push_back(of_results ? results(d) : dims[d].items);
    shape.push_back(channels);
    return shape;
  }
  Values rows_of(const Values& all, std::pair<std::int64_t, std::int64_t> rows, bool of_results) const {
    const std::int64_t row = points(of_results) / (of_results ? results(0) : dims[0].items) * channels;
    return {all.begin() + rows.first * row, all.begin() + rows.second * row};
  }
};

const Played kPlayed[] = {
    {Kind::kLinear, {{4, 8}}, 1},
    {Kind::kNearest, {{2, 6}}, 3},
    {Kind::kNearest, {{10, 4}}, 2},
    {Kind::kNearestExact, {{8, 5}}, 2},
    {Kind::kLinear, {{8, 12}}, 5},
    {Kind::kLinear, {{8, 4}}, 5},
    {Kind::kLinearAligned, {{16, 32}}, 2},
    {Kind::kLinear, {{5, 0, 1.5}}, 3},
    {Kind::kLinear, {{7, 13}, {6, 11}}, 4},
    {Kind::kNearest, {{9, 18}, {5, 10}}, 4},
    {Kind::kLinearAligned, {{6, 7}, {4, 9}}, 3},
};

// Goal:   cases I1 to I3 and I6: each rank, from the items that the planner says it needs and no other,
//         computes what one rank computes; and gradients that it gives to its items and ghosts add up to
//         those of one rank.
TEST(Interpolation, IsThatOfTheWholeFieldFromWhatThePlannerSays) {
  Random random(5);
  for (const Played& p : kPlayed)
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
      for (const Layout in : {Layout::kDense, Layout::kPaddedRows}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(p.kind)) + " of " + std::to_string(p.dims[0].items));
        const Values x =
            rounded(dtype, random.uniforms(static_cast<std::size_t>(p.points(false) * p.channels)));
        const Values dy =
            rounded(dtype, random.uniforms(static_cast<std::size_t>(p.points(true) * p.channels)));
        const Values y = p.forward(x), dx = p.backward(dy);
        Values gradients(dx.size(), 0.0);
        Window window;
        window.kind = p.kind;
        window.length = p.dims[0].scale != 0 ? 0 : p.dims[0].results;
        window.scale = p.dims[0].scale;
        const std::int64_t first = p.dims[0].items / 3 + 1;
        const auto layout = muster::Layout::make(
            std::vector<std::int64_t>{p.dims[0].items},
            {{"rows", 2, Placement::shard(0, Split::given({first, p.dims[0].items - first}))}});
        const auto stencil = halo::Stencil::make(*layout, std::vector<Window>{window});
        ASSERT_TRUE(stencil.has_value());
        for (std::int64_t rank = 0; rank < 2; ++rank) {
          const halo::Halo part = *stencil->halo(rank);
          const std::pair held(part.held.offset[0], part.held.offset[0] + part.held.length[0]);
          const std::pair results(part.results.offset[0], part.results.offset[0] + part.results.length[0]);
          OwnedTensor from(dtype, p.shape(held, false), in, p.rows_of(x, held, false));
          OwnedTensor to(dtype, p.shape(results, true), in);
          run_in_any_order(row(MUSTER_KERNEL_INTERPOLATE_FORWARD),
                           p.args(from.view(), to.view(), held, results, results, true, 0), {&to});
          expect_close(to.values(), p.rows_of(y, results, true),
                       {4e-7 + (dtype == MUSTER_BF16 ? 1e-2 : 0), half_ulp(dtype) * 1.01});
          OwnedTensor given(dtype, p.shape(results, true), in, p.rows_of(dy, results, true));
          OwnedTensor back(dtype, p.shape(held, false), in,
                           Values(static_cast<std::size_t>(from.count()), 1.0));
          run_in_any_order(row(MUSTER_KERNEL_INTERPOLATE_BACKWARD),
                           p.args(given.view(), back.view(), held, results, held, false, 1), {&back});
          const Values of_rank = back.values();
          const std::int64_t begin = held.first * (static_cast<std::int64_t>(dx.size()) / p.dims[0].items);
          for (std::size_t i = 0; i < of_rank.size(); ++i)
            gradients[static_cast<std::size_t>(begin) + i] += of_rank[i] - 1.0;
        }
        expect_close(gradients, dx, {2e-6 + (dtype == MUSTER_BF16 ? 4e-2 : 0), 1e-6});
      }
}

TEST(Interpolation, RefusesByName) {
  const Played p{Kind::kLinear, {{8, 12}}, 2};
  OwnedTensor x(MUSTER_F32, {1, 8, 2}), y(MUSTER_F32, {1, 12, 2});
  const auto refused = [&](const char* text, auto change) {
    Args args = p.args(x.view(), y.view(), {0, 8}, {0, 12}, {0, 12}, true, 0);
    change(args);
    expect_refused(row(MUSTER_KERNEL_INTERPOLATE_FORWARD), args, text);
  };
  refused("mode", [](Args& a) { a.ints[0] = 9; });
  refused("y_offset", [](Args& a) { a.ints[11] = 1; });
  refused("length", [](Args& a) { a.ints[17] = 13; });
  refused("x_offset", [](Args& a) { a.ints[2] = 7; });
  refused("length is 0 and scale is 0", [](Args& a) { a.ints[5] = 0; });
}

}  // namespace
}  // namespace muster::kernels::test
