#include "kernels/group_norm/group_norm.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/group_norm.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using twin::GroupNormSizes;

constexpr double kEpsilon = 1e-5;

const Kernel& row(std::int32_t op) {
  return row_of(group_norm::rows(), op);
}

// A field [samples, rows, columns, channels] whose rows are cut over ranks, and the steps as a rank takes
// them.
struct CutField {
  CutField(std::int64_t samples, std::vector<std::int64_t> rows, std::int64_t columns, std::int64_t channels,
           std::int64_t groups, muster_dtype with, Layout in)
      : sizes{samples, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) * columns, channels,
              groups},
        of_ranks(std::move(rows)),
        width(columns),
        dtype(with),
        layout(in) {}

  // A rank's rows of all samples.
  Values part_of(const Values& all, std::size_t rank) const {
    const std::int64_t first = std::accumulate(
        of_ranks.begin(), of_ranks.begin() + static_cast<std::ptrdiff_t>(rank), std::int64_t{0});
    Values part;
    for (std::int64_t n = 0; n < sizes.samples; ++n) {
      const auto begin = all.begin() + (n * sizes.points + first * width) * sizes.channels;
      part.insert(part.end(), begin, begin + of_ranks[rank] * width * sizes.channels);
    }
    return part;
  }
  OwnedTensor array(const Values& all, std::size_t rank) const {
    return {dtype, {sizes.samples, of_ranks[rank], width, sizes.channels}, layout, part_of(all, rank)};
  }
  // The ranks' statistics, gathered and merged.
  Values merged(const Values& x) const {
    const std::int64_t numbers = sizes.samples * sizes.groups * 3;
    Values all;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      OwnedTensor part = array(x, rank), statistics(MUSTER_F64, {sizes.samples, sizes.groups, 3});
      run_in_any_order(row(MUSTER_KERNEL_GROUP_NORM_STATISTICS), args_of({part.view(), statistics.view()}),
                       {&statistics});
      const Values own = statistics.values();
      all.insert(all.end(), own.begin(), own.end());
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(numbers) * of_ranks.size());
    OwnedTensor gathered(MUSTER_F64,
                         {static_cast<std::int64_t>(of_ranks.size()), sizes.samples, sizes.groups, 3},
                         Layout::kDense, all);
    OwnedTensor out(MUSTER_F64, {sizes.samples, sizes.groups, 3});
    run(row(MUSTER_KERNEL_GROUP_NORM_MERGE), args_of({gathered.view(), out.view()}, {}, {kEpsilon}));
    return out.values();
  }
  OwnedTensor by_group(const Values& values, std::int64_t numbers) const {
    return {MUSTER_F64, {sizes.samples, sizes.groups, numbers}, Layout::kDense, values};
  }
  OwnedTensor by_channel(muster_dtype of, const Values& values) const {
    return {of, {sizes.channels}, Layout::kSpacedInner, values};
  }

  GroupNormSizes sizes;
  std::vector<std::int64_t> of_ranks;
  std::int64_t width;
  muster_dtype dtype;
  Layout layout;
};

void expect_as_whole(const CutField& f, const Values& x, double tolerance, Random& random) {
  const auto channels = static_cast<std::size_t>(f.sizes.channels);
  const Values dy = rounded(f.dtype, random.uniforms(x.size()));
  const Values weight = rounded(f.dtype, random.uniforms(channels, 0.5, 1.5));
  const Values bias = rounded(f.dtype, random.uniforms(channels));
  const Values y = twin::group_norm_forward(f.sizes, x, weight, bias, kEpsilon);
  const twin::GroupNormGradients expected = twin::group_norm_backward(f.sizes, dy, x, weight, kEpsilon);
  OwnedTensor merged = f.by_group(f.merged(x), 3), w = f.by_channel(f.dtype, weight),
              b = f.by_channel(f.dtype, bias);
  Values sums(static_cast<std::size_t>(f.sizes.samples * f.sizes.groups * 2), 0.0);
  OwnedTensor dweight = f.by_channel(MUSTER_F32, Values(channels, 0.0));
  OwnedTensor dbias = f.by_channel(MUSTER_F32, Values(channels, 0.0));
  const Tolerance close{tolerance + half_ulp(f.dtype), 1.01 * half_ulp(f.dtype) + tolerance};
  for (std::size_t rank = 0; rank < f.of_ranks.size(); ++rank) {
    OwnedTensor part = f.array(x, rank), out = f.array(x, rank), gradients = f.array(dy, rank);
    OwnedTensor own(MUSTER_F64, {f.sizes.samples, f.sizes.groups, 2});
    run_in_any_order(row(MUSTER_KERNEL_GROUP_NORM_FORWARD),
                     args_of({part.view(), merged.view(), w.view(), b.view(), out.view()}), {&out});
    expect_close(out.values(), f.part_of(y, rank), close);
    run(row(MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS),
        args_of({gradients.view(), part.view(), merged.view(), w.view(), own.view(), dweight.view(),
                 dbias.view()},
                {1}));
    const Values of_rank = own.values();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_rank[i];
  }
  const double terms = 1e-5 * static_cast<double>(f.sizes.samples * f.sizes.points);
  expect_close(dweight.values(), expected.dweight, {1e-4 + terms * 0.01, 1e-4});
  expect_close(dbias.values(), expected.dbias, {1e-4 + terms * 0.01, 1e-4});
  OwnedTensor all = f.by_group(sums, 2);
  for (std::size_t rank = 0; rank < f.of_ranks.size(); ++rank) {
    OwnedTensor part = f.array(x, rank), gradients = f.array(dy, rank), dx = f.array(dy, rank);
    run_in_any_order(row(MUSTER_KERNEL_GROUP_NORM_BACKWARD),
                     args_of({gradients.view(), part.view(), merged.view(), w.view(), all.view(), dx.view()}),
                     {&dx});
    const double largest = *std::max_element(expected.dx.begin(), expected.dx.end());
    expect_close(
        dx.values(), f.part_of(expected.dx, rank),
        {(tolerance + 2 * half_ulp(f.dtype)) * std::max(1.0, largest), 2 * half_ulp(f.dtype) + tolerance});
  }
}

// Goal:   cases G1 and G3: however rows are cut, ranks compute what one rank computes of the whole field,
//         forward and backward; an empty shard counts nothing.
TEST(GroupNorm, IsThatOfTheWholeField) {
  Random random(31);
  for (const auto& rows : {std::vector<std::int64_t>{9}, {4, 5}, {1, 0, 7, 1}, {0, 9}, {3, 3, 3}})
    for (const auto& [channels, groups] : {std::pair(12, 1), {12, 4}, {40, 8}, {48, 3}})
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16})
        for (const Layout layout : kLayouts) {
          const CutField f(2, rows, 7, channels, groups, dtype, layout);
          SCOPED_TRACE(testing::PrintToString(rows) + " rows, " + std::to_string(groups) + " groups of " +
                       std::to_string(channels) + " channels, " + layout_name(layout));
          const std::size_t count = 2 * 9 * 7 * static_cast<std::size_t>(channels);
          expect_as_whole(f, rounded(dtype, random.uniforms(count, -0.5, 1.5)), 1e-6, random);
        }
  const CutField large(1, {129, 128}, 257, 32, 4, MUSTER_F32, Layout::kDense);
  expect_as_whole(large, rounded(MUSTER_F32, random.uniforms(std::size_t{257} * 257 * 32)), 1e-6, random);
}

// Goal:   case G2: values near 10,000 that differ by 0.01 have a variance of 0.0341, as they do in f64, and
//         not one of roundings.
TEST(GroupNorm, KeepsSmallDifferencesOfLargeValues) {
  Values x;
  for (int i = 0; i < 64; ++i) x.push_back(1e4 + 0.01 * i);
  x = rounded(MUSTER_F32, x);
  const CutField f(1, {3, 5}, 4, 2, 1, MUSTER_F32, Layout::kDense);
  const Values merged = f.merged(x);
  double mean = 0, variance = 0;
  for (const double value : x) mean += value / 64;
  for (const double value : x) variance += (value - mean) * (value - mean) / 64;
  EXPECT_NEAR(variance, 0.0341, 2e-4);
  EXPECT_NEAR(1 / (merged[1] * merged[1]) - kEpsilon, variance, 1e-9);
  EXPECT_EQ(merged[2], 64);
  Random random(3);
  expect_as_whole(f, x, 1e-6, random);
}

TEST(GroupNorm, RefusesByName) {
  OwnedTensor x(MUSTER_F32, {2, 3, 6}), statistics(MUSTER_F64, {2, 3, 3});
  const auto refused = [&](const char* text, auto change) {
    Args args = args_of({x.view(), statistics.view()});
    change(args);
    expect_refused(row(MUSTER_KERNEL_GROUP_NORM_STATISTICS), args, text);
  };
  refused("x", [](Args& a) { a.tensors[0].dims = 2; });
  refused("statistics", [](Args& a) { a.tensors[1].dtype = MUSTER_F32; });
  refused("statistics", [](Args& a) { a.tensors[1].size[2] = 2; });
  refused("4 groups of statistics do not divide the 6 channels of x", [](Args& a) {
    a.tensors[1].size[1] = 4;
    a.tensors[1].stride[0] = 12;
  });
}

}  // namespace
}  // namespace muster::kernels::test
