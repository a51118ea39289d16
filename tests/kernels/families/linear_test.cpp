#include "kernels/linear/linear.hpp"

#include "kernels/linear/tiling.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"
#include "tests/kernels/families/twin/linear.hpp"

#include <muster/kernels.h>

#include <cmath>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using twin::LinearSizes;

const Kernel& row(std::int32_t op) {
  return row_of(linear::rows(), op);
}

// Zero, odd and prime sizes; more terms along each dim than are packed at a time; the last one is cut into
// tiles along both dims.
const std::vector<LinearSizes> kSizes{{1, 1, 1},    {3, 17, 5},   {17, 3, 129}, {129, 65, 33},
                                      {0, 4, 5},    {4, 0, 5},    {4, 5, 0},    {1, 129, 17},
                                      {5, 7, 2500}, {2500, 3, 5}, {3, 2500, 5}, {150, 150, 1000}};

struct Types {
  muster_dtype in, out;
};

std::string name_of(const LinearSizes& s, Layout layout, Types types) {
  return "tokens " + std::to_string(s.tokens) + " out " + std::to_string(s.out) + " in " +
         std::to_string(s.in) + " " + layout_name(layout) + " dtypes " + std::to_string(types.in) + " " +
         std::to_string(types.out);
}

Shape shape(std::size_t a, std::size_t b) {
  return {static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)};
}

// A chain of `terms` additions in f32 of products of values in [-1, 1]: partial sums grow like sqrt(terms)/3
// and so do their roundings, which add up like another sqrt(terms); 2·terms units are over ten standard
// deviations. Then one rounding to the output.
Tolerance after(std::size_t terms, muster_dtype out) {
  return {0x1p-24 * (4.0 + 2.0 * static_cast<double>(terms)), 1.001 * half_ulp(out)};
}

// Every layout on small sizes; the large ones only as a training step has them.
bool is_skipped(const LinearSizes& s, Layout layout) {
  return s.tokens * s.out * s.in > 1'000'000 && layout != Layout::kDense;
}

template<class F>
void for_every_case(F&& f) {
  Random random(61);
  for (const LinearSizes& s : kSizes) {
    for (const Layout layout : kLayouts) {
      if (is_skipped(s, layout)) continue;
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) f(s, layout, dtype, random);
    }
  }
}

TEST(LinearForward, MatchesTheTwin) {
  for_every_case([](const LinearSizes& s, Layout layout, muster_dtype dtype, Random& random) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(name_of(s, layout, {dtype, dtype}) + (with_bias ? " bias" : ""));
      OwnedTensor x(dtype, shape(s.tokens, s.in), layout, random.uniforms(s.tokens * s.in));
      OwnedTensor w(dtype, shape(s.out, s.in), layout, random.uniforms(s.out * s.in));
      OwnedTensor bias(dtype, {static_cast<std::int64_t>(s.out)}, layout, random.uniforms(s.out));
      OwnedTensor y(dtype, shape(s.tokens, s.out), layout);
      const Args args = args_of({x.view(), w.view(), with_bias ? bias.view() : Tensor{}, y.view()});
      run_in_any_order(row(MUSTER_KERNEL_LINEAR_FORWARD), args, {&y});
      expect_close(y.values(),
                   twin::linear_forward(s, x.values(), w.values(), with_bias ? bias.values() : Values{}),
                   after(s.in, dtype));
    }
  });
}

void add(Values& to, const Values& values, bool really) {
  for (std::size_t i = 0; really && i < to.size(); ++i) to[i] += values[i];
}

TEST(LinearDgrad, MatchesTheTwin) {
  for_every_case([](const LinearSizes& s, Layout layout, muster_dtype dtype, Random& random) {
    for (const std::int64_t accumulate : {0, 1}) {
      SCOPED_TRACE(name_of(s, layout, {dtype, dtype}) + (accumulate != 0 ? " accumulate" : ""));
      OwnedTensor dy(dtype, shape(s.tokens, s.out), layout, random.uniforms(s.tokens * s.out));
      OwnedTensor w(dtype, shape(s.out, s.in), layout, random.uniforms(s.out * s.in));
      OwnedTensor dx(dtype, shape(s.tokens, s.in), layout, random.uniforms(s.tokens * s.in));
      Values expected = twin::linear_dgrad(s, dy.values(), w.values());
      add(expected, dx.values(), accumulate != 0);
      run_in_any_order(row(MUSTER_KERNEL_LINEAR_DGRAD),
                       args_of({dy.view(), w.view(), dx.view()}, {accumulate}), {&dx});
      expect_close(dx.values(), expected, after(s.out, dtype));
    }
  });
}

TEST(LinearWgrad, MatchesTheTwin) {
  for_every_case([](const LinearSizes& s, Layout layout, muster_dtype dtype, Random& random) {
    for (const muster_dtype out : {MUSTER_F32, MUSTER_BF16}) {
      if (dtype == MUSTER_F32 && out == MUSTER_BF16) continue;
      for (const std::int64_t accumulate : {0, 1}) {
        SCOPED_TRACE(name_of(s, layout, {dtype, out}) + (accumulate != 0 ? " accumulate" : ""));
        OwnedTensor dy(dtype, shape(s.tokens, s.out), layout, random.uniforms(s.tokens * s.out));
        OwnedTensor x(dtype, shape(s.tokens, s.in), layout, random.uniforms(s.tokens * s.in));
        OwnedTensor dw(out, shape(s.out, s.in), layout, random.uniforms(s.out * s.in));
        OwnedTensor dbias(out, {static_cast<std::int64_t>(s.out)}, layout, random.uniforms(s.out));
        Values expected_w = twin::linear_wgrad(s, dy.values(), x.values());
        Values expected_b = twin::linear_dbias(s, dy.values());
        add(expected_w, dw.values(), accumulate != 0);
        add(expected_b, dbias.values(), accumulate != 0);
        run_in_any_order(row(MUSTER_KERNEL_LINEAR_WGRAD),
                         args_of({dy.view(), x.view(), dw.view(), dbias.view()}, {accumulate}),
                         {&dw, &dbias});
        expect_close(dw.values(), expected_w, after(s.tokens, out));
        expect_close(dbias.values(), expected_b, {1e-12, 1.001 * half_ulp(out)});
      }
    }
  });
}

TEST(LinearTwin, BackwardIsTheGradientOfForward) {
  Random random(62);
  const LinearSizes s{5, 4, 3};
  const Values x = random.uniforms(15);
  const Values w = random.uniforms(12);
  const Values bias = random.uniforms(4);
  const Values dy = random.uniforms(20);
  const auto by_x = [&](const Values& v) { return twin::dot(twin::linear_forward(s, v, w, bias), dy); };
  const auto by_w = [&](const Values& v) { return twin::dot(twin::linear_forward(s, x, v, bias), dy); };
  const auto by_bias = [&](const Values& v) { return twin::dot(twin::linear_forward(s, x, w, v), dy); };
  expect_close(twin::linear_dgrad(s, dy, w), twin::finite_difference(by_x, x), {1e-9, 0.0});
  expect_close(twin::linear_wgrad(s, dy, x), twin::finite_difference(by_w, w), {1e-9, 0.0});
  expect_close(twin::linear_dbias(s, dy), twin::finite_difference(by_bias, bias), {1e-9, 0.0});
}

// Goal: shapes of one element a dim, where any stride is legal because it is never used.
TEST(Linear, IgnoresTheStrideOfADimOfOneElement) {
  Random random(63);
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
    for (const LinearSizes& s :
         {LinearSizes{1, 3, 5}, LinearSizes{3, 1, 5}, LinearSizes{3, 5, 1}, LinearSizes{1, 1, 7}}) {
      for (const std::int64_t stride : {0, 1, 1000000}) {
        OwnedTensor x(dtype, shape(s.tokens, s.in), Layout::kDense, random.uniforms(s.tokens * s.in));
        OwnedTensor w(dtype, shape(s.out, s.in), Layout::kDense, random.uniforms(s.out * s.in));
        OwnedTensor y(dtype, shape(s.tokens, s.out));
        Args args = args_of({x.view(), w.view(), Tensor{}, y.view()});
        for (Tensor& t : args.tensors)
          for (std::size_t d = 0; d < 2; ++d)
            if (t.size[d] == 1) t.stride[d] = stride;
        run_in_any_order(row(MUSTER_KERNEL_LINEAR_FORWARD), args, {&y});
        expect_close(y.values(), twin::linear_forward(s, x.values(), w.values(), {}), after(s.in, dtype));
      }
    }
  }
}

// Goal: an input with stride 0 is one row seen many times, not an error.
TEST(LinearForward, TakesABroadcastInput) {
  Random random(64);
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
    OwnedTensor one(dtype, {1, 7}, Layout::kDense, random.uniforms(7));
    OwnedTensor w(dtype, {5, 7}, Layout::kDense, random.uniforms(35));
    OwnedTensor y(dtype, {4, 5});
    Tensor x = one.view();
    x.size[0] = 4;
    x.stride[0] = 0;
    run_in_any_order(row(MUSTER_KERNEL_LINEAR_FORWARD), args_of({x, w.view(), Tensor{}, y.view()}), {&y});
    Values repeated;
    for (int i = 0; i < 4; ++i)
      for (const double value : one.values()) repeated.push_back(value);
    expect_close(y.values(), twin::linear_forward({4, 5, 7}, repeated, w.values(), {}), after(7, dtype));
  }
}

TEST(LinearForward, CarriesANaNOfTheInputAndNoneOfTheOldOutput) {
  OwnedTensor x(MUSTER_F32, {2, 2}, Layout::kDense, {1.0, std::nan(""), 1.0, 2.0});
  OwnedTensor w(MUSTER_F32, {1, 2}, Layout::kDense, {1.0, 1.0});
  OwnedTensor y(MUSTER_F32, {2, 1}, Layout::kDense, {std::nan(""), std::nan("")});
  run(row(MUSTER_KERNEL_LINEAR_FORWARD), args_of({x.view(), w.view(), Tensor{}, y.view()}));
  expect_close(y.values(), {std::nan(""), 3.0}, {});
}

TEST(Tiling, CoversEveryElementOnceInTilesOfBoundedWork) {
  for (const std::int64_t m : {0, 1, 63, 64, 65, 1000, 4097}) {
    for (const std::int64_t n : {0, 1, 64, 129, 5000}) {
      for (const std::int64_t k : {0, 1, 128, 4096, 1000000}) {
        SCOPED_TRACE(testing::Message() << m << " " << n << " " << k);
        const linear::Tiling tiling = linear::Tiling::of(m, n, k);
        std::int64_t covered = 0;
        std::int64_t next_row = 0;
        std::int64_t next_column = 0;
        for (std::uint32_t tile = 0; tile < tiling.count(); ++tile) {
          const Range rows = tiling.rows(tile);
          const Range columns = tiling.columns(tile);
          EXPECT_EQ(rows.begin, next_row);
          EXPECT_EQ(columns.begin, next_column);
          EXPECT_TRUE(rows.begin < rows.end && rows.end <= m && columns.begin < columns.end &&
                      columns.end <= n);
          const std::int64_t area = (rows.end - rows.begin) * (columns.end - columns.begin);
          covered += area;
          EXPECT_TRUE(area <= 64 * 64 || static_cast<double>(area) * 2.0 * static_cast<double>(k) < 60e6);
          next_column = columns.end == n ? 0 : columns.end;
          if (next_column == 0) next_row = rows.end;
        }
        EXPECT_EQ(covered, m * n);
      }
    }
  }
}

TEST(Linear, RefusesOperandsThatDoNotFit) {
  OwnedTensor x(MUSTER_F32, {32, 65});
  OwnedTensor w(MUSTER_F32, {128, 64});
  OwnedTensor v(MUSTER_F32, {128, 65});
  OwnedTensor y(MUSTER_F32, {32, 128});
  OwnedTensor flat(MUSTER_F32, {65});
  OwnedTensor half(MUSTER_BF16, {32, 128});
  OwnedTensor bias(MUSTER_F32, {128});
  const auto of = [](OwnedTensor& a, OwnedTensor& b, OwnedTensor& c) {
    return args_of({a.view(), b.view(), c.view()});
  };
  const auto forward = [](OwnedTensor& a, OwnedTensor& b, OwnedTensor& c, OwnedTensor& d) {
    return args_of({a.view(), b.view(), c.view(), d.view()});
  };
  const Kernel& f = row(MUSTER_KERNEL_LINEAR_FORWARD);
  expect_refused(f, forward(x, w, bias, y),
                 "w is [128, 64], but x is [32, 65]: w's second size must equal x's second");
  expect_refused(f, forward(flat, v, bias, y), "x is [65] and has 1 dims; it must have 2");
  expect_refused(f, forward(x, v, flat, y), "bias is [65], but w is [128, 65]");
  expect_refused(f, forward(x, v, bias, v), "y is [128, 65], but x is [32, 65]");
  expect_refused(f, forward(x, v, bias, x), "y is [32, 65], but w is [128, 65]");
  expect_refused(f, forward(x, v, bias, half), "y is bf16, but x is f32");
  Args absent = forward(x, v, bias, y);
  absent.tensors[1] = {};
  expect_refused(f, absent, "w is absent");

  const Kernel& d = row(MUSTER_KERNEL_LINEAR_DGRAD);
  expect_refused(d, of(y, w, x), "dx is [32, 65], but w is [128, 64]");
  expect_refused(d, of(x, w, y), "w is [128, 64], but dy is [32, 65]: w's first size must equal dy's second");
  expect_refused(d, of(half, v, x), "w is f32, but dy is bf16");
  Args twice = of(y, v, x);
  twice.ints = {2};
  expect_refused(d, twice, "accumulate is 2");

  const Kernel& g = row(MUSTER_KERNEL_LINEAR_WGRAD);
  expect_refused(g, forward(y, v, v, bias), "x is [128, 65], but dy is [32, 128]");
  expect_refused(g, forward(y, x, w, bias), "dw is [128, 64], but x is [32, 65]");
  expect_refused(g, forward(y, x, v, flat), "dbias is [65], but dy is [32, 128]");
  expect_refused(g, forward(y, x, half, bias), "dw is bf16, but dy is f32");
}

}  // namespace
}  // namespace muster::kernels::test
