#include "kernels/convolution/convolution.hpp"

#include "kernels/check.hpp"
#include "kernels/convolution/geometry.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/convolution.hpp"
#include "tests/support/property_cases.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dnnl.h>
#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

using convolution::Geometry;
using twin::ConvolutionSizes;
using Extents = std::vector<std::pair<std::int64_t, std::int64_t>>;  // [begin, end) of each spatial dim

const Kernel& row(std::int32_t op) {
  return row_of(convolution::rows(), op);
}

std::string text_of(const ConvolutionSizes& s) {
  std::string text =
      fmt::format("{} samples, {} to {} channels in {} groups:", s.samples, s.channels, s.outputs, s.groups);
  for (std::size_t d = 0; d < s.dims(); ++d)
    text += fmt::format(" {} items kernel {} stride {} dilation {} pads {} {};", s.items[d], s.kernel[d],
                        s.stride[d], s.dilation[d], s.before[d], s.after[d]);
  return text;
}

Extents whole(const std::vector<std::int64_t>& sizes) {
  Extents all;
  for (const std::int64_t size : sizes) all.emplace_back(0, size);
  return all;
}

Shape shape_of(std::int64_t samples, const Extents& extents, std::int64_t channels) {
  Shape shape{samples};
  for (const auto& [begin, end] : extents) shape.push_back(end - begin);
  shape.push_back(channels);
  return shape;
}

// The elements of a whole field's values in a block of it.
Values part_of(const Values& all, std::int64_t samples, const std::vector<std::int64_t>& sizes,
               std::int64_t channels, const Extents& extents) {
  Values part;
  std::int64_t points = 1, block = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    points *= sizes[d];
    block *= extents[d].second - extents[d].first;
  }
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t i = 0; i < block; ++i) {
      std::int64_t rest = i, at = 0, step = 1;
      for (std::size_t d = sizes.size(); d-- > 0; step *= sizes[d]) {
        const std::int64_t length = extents[d].second - extents[d].first;
        at += (extents[d].first + rest % length) * step;
        rest /= length;
      }
      for (std::int64_t c = 0; c < channels; ++c)
        part.push_back(all[static_cast<std::size_t>((n * points + at) * channels + c)]);
    }
  return part;
}

// The numbers of a row: what x and y have, and the box.
std::vector<std::int64_t> ints_of(const ConvolutionSizes& s, const Extents& x, const Extents& y,
                                  const Extents& box, int accumulate = 0) {
  std::vector<std::int64_t> ints{s.groups, accumulate};
  const auto list = [&](std::int64_t unused, auto of) {
    for (std::size_t d = 0; d < 3; ++d) ints.push_back(d < s.dims() ? of(d) : unused);
  };
  list(1, [&](std::size_t d) { return s.stride[d]; });
  list(1, [&](std::size_t d) { return s.dilation[d]; });
  list(0, [&](std::size_t d) { return s.before[d]; });
  list(0, [&](std::size_t d) { return x[d].first; });
  list(0, [&](std::size_t d) { return y[d].first; });
  list(0, [&](std::size_t d) { return box[d].first; });
  list(0, [&](std::size_t d) { return box[d].second - box[d].first; });
  return ints;
}

Args args_with(std::initializer_list<Tensor> tensors, const std::vector<std::int64_t>& ints) {
  Args args = args_of(tensors);
  args.ints = ints;
  return args;
}

// A block of results, and what it reads of the items.
struct Cut {
  Extents results, items;
};
Cut cut_of(const ConvolutionSizes& s, const Extents& results) {
  Cut cut{results, {}};
  for (std::size_t d = 0; d < s.dims(); ++d) {
    const std::int64_t low = results[d].first * s.stride[d] - s.before[d];
    const std::int64_t high =
        (results[d].second - 1) * s.stride[d] - s.before[d] + s.dilation[d] * (s.kernel[d] - 1) + 1;
    const std::int64_t begin = std::clamp<std::int64_t>(low, 0, s.items[d]);
    cut.items.emplace_back(begin, std::max(begin, std::min(high, s.items[d])));
  }
  return cut;
}

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : random(seed) {
    const auto dims = static_cast<std::size_t>(random.integer(1, 3));
    sizes.samples = random.integer(1, 2);
    sizes.groups = random.integer(1, 3) == 1 ? random.integer(2, 4) : 1;
    sizes.channels = sizes.groups * random.integer(1, 5);
    sizes.outputs = sizes.groups * random.integer(1, 5);
    for (std::size_t d = 0; d < dims; ++d) {
      sizes.items.push_back(random.integer(1, dims == 1 ? 40 : dims == 2 ? 12 : 6));
      sizes.kernel.push_back(random.integer(1, dims == 3 ? 3 : 7));
      sizes.stride.push_back(random.integer(1, 4));
      sizes.dilation.push_back(random.integer(1, 3));
      const std::int64_t span = sizes.dilation[d] * (sizes.kernel[d] - 1) + 1;
      sizes.before.push_back(random.integer(0, 4));
      sizes.after.push_back(
          std::max<std::int64_t>(random.integer(0, 4), span - sizes.items[d] - sizes.before[d]));
    }
    results = sizes.results();
  }
  Extents within(const std::vector<std::int64_t>& of) {
    Extents box;
    for (const std::int64_t size : of) {
      const std::int64_t begin = random.integer(0, size - 1);
      box.emplace_back(begin, random.integer(begin + 1, size));
    }
    return box;
  }
  Values draw(std::int64_t channels, const std::vector<std::int64_t>& of, std::int64_t samples,
              bool whole_numbers) {
    std::int64_t count = channels * samples;
    for (const std::int64_t size : of) count *= size;
    if (!whole_numbers) return random.uniforms(static_cast<std::size_t>(count));
    Values values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(random.integer(-4, 4)));
    return values;
  }
  Layout layout() { return *(kLayouts.begin() + random.integer(0, 3)); }

  Random random;
  ConvolutionSizes sizes;
  std::vector<std::int64_t> results;
};

double tolerance_of(std::int64_t terms, muster_dtype dtype) {
  return 0x1p-24 * (8.0 + 2.0 * static_cast<double>(terms)) + (dtype == MUSTER_BF16 ? 0x1p-8 : 0);
}

// Goal:   a box of a rank's part, computed from what the rank holds, is what one rank computes of the whole
//         field; whole numbers are equal to the bit. The rest of the outputs stays.
TEST(Convolution, ComputesABoxOfTheWholeField) {
  const std::uint64_t cases = muster::test::property_cases(400);
  for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
    Drawn d(seed);
    const ConvolutionSizes& s = d.sizes;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(s)));
    const bool exact = seed % 2 == 0;
    const muster_dtype dtype = seed % 4 == 3 ? MUSTER_BF16 : MUSTER_F32;
    const Values x = rounded(dtype, d.draw(s.channels, s.items, s.samples, exact));
    const Values w = rounded(dtype, d.draw(s.channels / s.groups, s.kernel, s.outputs, exact));
    const Values bias = rounded(dtype, d.draw(s.outputs, {}, 1, exact));
    const Values y = twin::convolution_forward(s, x, w, bias);
    const Cut cut = cut_of(s, d.within(d.results));
    Extents box;
    for (const auto& [begin, end] : cut.results) {
      const std::int64_t from = d.random.integer(begin, end);
      box.emplace_back(from, d.random.integer(from, end));
    }
    Shape w_shape{s.outputs};
    w_shape.insert(w_shape.end(), s.kernel.begin(), s.kernel.end());
    w_shape.push_back(s.channels / s.groups);
    OwnedTensor held(dtype, shape_of(s.samples, cut.items, s.channels), d.layout(),
                     part_of(x, s.samples, s.items, s.channels, cut.items));
    OwnedTensor weights(dtype, w_shape, d.layout(), w);
    OwnedTensor biases(dtype, {s.outputs}, d.layout(), bias);
    const Values before(part_of(y, s.samples, d.results, s.outputs, cut.results).size(), 77.0);
    OwnedTensor out(dtype, shape_of(s.samples, cut.results, s.outputs), d.layout(), before);
    run_in_any_order(row(MUSTER_KERNEL_CONVOLUTION_FORWARD),
                     args_with({held.view(), weights.view(), biases.view(), out.view()},
                               ints_of(s, cut.items, cut.results, box)),
                     {&out});
    // Where the box is, the field's results; else what was there.
    Values expected = before;
    const Values wanted = part_of(y, s.samples, d.results, s.outputs, cut.results);
    const auto in_box = [&](std::size_t element) {
      std::int64_t rest = static_cast<std::int64_t>(element) / s.outputs;
      for (std::size_t i = s.dims(); i-- > 0;) {
        const std::int64_t length = cut.results[i].second - cut.results[i].first;
        const std::int64_t o = cut.results[i].first + rest % length;
        rest /= length;
        if (o < box[i].first || o >= box[i].second) return false;
      }
      return true;
    };
    for (std::size_t at = 0; at < expected.size(); ++at)
      if (in_box(at)) expected[at] = wanted[at];
    std::int64_t terms = s.channels / s.groups;
    for (const std::int64_t k : s.kernel) terms *= k;
    const double tolerance = exact && dtype == MUSTER_F32 ? 0.0 : tolerance_of(terms, dtype);
    expect_close(out.values(), expected, {tolerance, dtype == MUSTER_BF16 ? 0x1p-8 : tolerance});
  }
}

// Goal:   likewise gradients of items from the results that a rank holds, and of weights over its own
//         results, which add up over ranks; each replaces, or adds.
TEST(Convolution, HasTheGradientsOfTheWholeField) {
  const std::uint64_t cases = muster::test::property_cases(400);
  for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
    Drawn d(seed + 1'000'000);
    const ConvolutionSizes& s = d.sizes;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(s)));
    const muster_dtype dtype = seed % 4 == 3 ? MUSTER_BF16 : MUSTER_F32;
    const bool accumulate = seed % 3 == 0;
    const Values x = rounded(dtype, d.draw(s.channels, s.items, s.samples, true));
    const Values w = rounded(dtype, d.draw(s.channels / s.groups, s.kernel, s.outputs, true));
    const Values dy = rounded(dtype, d.draw(s.outputs, d.results, s.samples, true));
    Shape w_shape{s.outputs};
    w_shape.insert(w_shape.end(), s.kernel.begin(), s.kernel.end());
    w_shape.push_back(s.channels / s.groups);
    OwnedTensor weights(dtype, w_shape, d.layout(), w);

    const Extents items = d.within(s.items), results = whole(d.results);
    OwnedTensor gradients(dtype, shape_of(s.samples, results, s.outputs), d.layout(), dy);
    Values dx = part_of(twin::convolution_dgrad(s, dy, w), s.samples, s.items, s.channels, items);
    const Values dx_before(dx.size(), 3.0);
    if (accumulate)
      for (double& each : dx) each += 3.0;
    OwnedTensor out(dtype, shape_of(s.samples, items, s.channels), d.layout(), dx_before);
    run_in_any_order(row(MUSTER_KERNEL_CONVOLUTION_DGRAD),
                     args_with({gradients.view(), weights.view(), out.view()},
                               ints_of(s, items, results, items, accumulate)),
                     {&out});
    expect_close(out.values(), dx, {0, dtype == MUSTER_BF16 ? 0x1p-8 : 0});

    // Two ranks, cut along the outermost dim: the second one adds.
    Values dw = twin::convolution_wgrad(s, dy, x), dbias = twin::convolution_dbias(s, dy);
    OwnedTensor dw_out(MUSTER_F32, w_shape, d.layout()), dbias_out(MUSTER_F32, {s.outputs}, d.layout());
    dw_out.set(Values(dw.size(), 0.0));
    dbias_out.set(Values(dbias.size(), 0.0));
    const std::int64_t middle = d.random.integer(0, d.results[0]);
    for (const auto& [begin, end] :
         {std::pair<std::int64_t, std::int64_t>{0, middle}, {middle, d.results[0]}}) {
      Extents own = whole(d.results);
      own[0] = {begin, end};
      if (begin == end) continue;
      const Cut cut = cut_of(s, own);
      OwnedTensor held(dtype, shape_of(s.samples, cut.items, s.channels), d.layout(),
                       part_of(x, s.samples, s.items, s.channels, cut.items));
      OwnedTensor mine(dtype, shape_of(s.samples, own, s.outputs), d.layout(),
                       part_of(dy, s.samples, d.results, s.outputs, own));
      const Args args = args_with({mine.view(), held.view(), dw_out.view(), dbias_out.view()},
                                  ints_of(s, cut.items, own, own, begin > 0));
      run(row(MUSTER_KERNEL_CONVOLUTION_WGRAD), args);
    }
    expect_close(dw_out.values(), dw, {});
    expect_close(dbias_out.values(), dbias, {});
  }
}

struct BitCase {
  std::int64_t channels, outputs, kernel, stride, dilation;
};

// A field of random f32 over one channels-last array, and the passes of a part of it.
class RandomField {
 public:
  explicit RandomField(const BitCase& c)
      : random_(7),
        sizes(sizes_of(c)),
        results(sizes.results()),
        x_(many(23 * 30 * c.channels)),
        dy_(many(results[0] * results[1] * c.outputs)),
        w_(MUSTER_F32, {c.outputs, c.kernel, c.kernel, c.channels}, Layout::kDense,
           many(c.outputs * c.kernel * c.kernel * c.channels)),
        bias_(MUSTER_F32, {c.outputs}, Layout::kDense, many(c.outputs)) {}

  Values forward(const Cut& cut, const std::vector<Extents>& boxes) {
    OwnedTensor held(MUSTER_F32, shape_of(1, cut.items, sizes.channels), Layout::kDense,
                     part_of(x_, 1, sizes.items, sizes.channels, cut.items));
    OwnedTensor y(MUSTER_F32, shape_of(1, cut.results, sizes.outputs));
    for (const Extents& box : boxes)
      run(row(MUSTER_KERNEL_CONVOLUTION_FORWARD), args_with({held.view(), w_.view(), bias_.view(), y.view()},
                                                            ints_of(sizes, cut.items, cut.results, box)));
    return y.values();
  }
  // From the results that read the items.
  Values back(const Extents& items) {
    Extents read;
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t first = items[d].first + sizes.before[d] - sizes.dilation[d] * (sizes.kernel[d] - 1);
      const std::int64_t rounded_up = first > 0 ? (first + sizes.stride[d] - 1) / sizes.stride[d] : 0;
      const std::int64_t end = (items[d].second - 1 + sizes.before[d]) / sizes.stride[d] + 1;
      read.emplace_back(std::min(rounded_up, results[d]), std::min(end, results[d]));
    }
    OwnedTensor held(MUSTER_F32, shape_of(1, read, sizes.outputs), Layout::kDense,
                     part_of(dy_, 1, results, sizes.outputs, read));
    OwnedTensor dx(MUSTER_F32, shape_of(1, items, sizes.channels));
    run(row(MUSTER_KERNEL_CONVOLUTION_DGRAD),
        args_with({held.view(), w_.view(), dx.view()}, ints_of(sizes, items, read, items)));
    return dx.values();
  }

 private:
  static ConvolutionSizes sizes_of(const BitCase& c) {
    ConvolutionSizes s;
    s.channels = c.channels;
    s.outputs = c.outputs;
    const std::int64_t pad = c.dilation * (c.kernel - 1) / 2;
    s.items = {23, 30};
    s.kernel = {c.kernel, c.kernel};
    s.stride = {c.stride, c.stride};
    s.dilation = {c.dilation, c.dilation};
    s.before = s.after = {pad, pad};
    return s;
  }
  Values many(std::int64_t count) {
    return rounded(MUSTER_F32, random_.uniforms(static_cast<std::size_t>(count)));
  }
  Random random_;

 public:
  const ConvolutionSizes sizes;
  const std::vector<std::int64_t> results;

 private:
  Values x_, dy_;
  OwnedTensor w_, bias_;
};

// Goal:   random f32: rows of the forward pass from what a rank holds, in one launch or as interior and
//         boundaries, and rows of the gradient from fetched results, are those of one rank to the bit.
TEST(Convolution, GivesTheBitsOfOneRankHoweverRowsAreCut) {
  for (const BitCase& c : {BitCase{3, 16, 3, 1, 1}, BitCase{5, 17, 3, 1, 1}, BitCase{16, 32, 3, 2, 1},
                           BitCase{17, 5, 5, 1, 1}, BitCase{32, 32, 3, 1, 1}, BitCase{48, 64, 1, 1, 1},
                           BitCase{64, 48, 3, 2, 1}, BitCase{32, 32, 3, 1, 2}, BitCase{32, 32, 5, 2, 1}}) {
    RandomField field(c);
    SCOPED_TRACE(text_of(field.sizes));
    const std::vector<std::int64_t>& results = field.results;
    const Values y = field.forward(cut_of(field.sizes, whole(results)), {whole(results)});
    const Values dx = field.back(whole(field.sizes.items));
    for (const std::int64_t cut : {std::int64_t{1}, std::int64_t{4}, results[0] - 1})
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, results[0]}}) {
        Extents own = whole(results);
        own[0] = {begin, end};
        const Cut mine = cut_of(field.sizes, own);
        const Values expected = part_of(y, 1, results, c.outputs, own);
        EXPECT_EQ(field.forward(mine, {own}), expected) << begin;
        if (end - begin < 3) continue;
        Extents first = own, middle = own, last = own, columns = own;
        first[0] = {begin, begin + 1};
        middle[0] = {begin + 1, end - 1};
        last[0] = {end - 1, end};
        columns[1] = {3, results[1] - 2};
        EXPECT_EQ(field.forward(mine, {middle, first, last}), expected) << begin;
        EXPECT_EQ(field.forward(cut_of(field.sizes, columns), {columns}),
                  part_of(y, 1, results, c.outputs, columns))
            << begin;
      }
    for (const std::int64_t cut : {1, 9, 22})
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, 23}}) {
        const Extents own{{begin, end}, {0, 30}};
        EXPECT_EQ(field.back(own), part_of(dx, 1, field.sizes.items, c.channels, own)) << begin;
      }
  }
}

// Goal:   what is prepared with a plan generates no code at its first launch; what is not does.
// Method: the library says of each primitive that is made whether it had its code.
TEST(Convolution, GeneratesNoCodeOnceItIsPrepared) {
  const auto said_by = [](const Kernel& kernel, const Args& args) {
    dnnl_set_verbose(2);
    testing::internal::CaptureStdout();
    run(kernel, args);
    std::fflush(stdout);
    std::string said = testing::internal::GetCapturedStdout();
    dnnl_set_verbose(0);
    return said;
  };
  std::size_t generated = 0, launched = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Drawn d(seed + 2'000'000);
    const ConvolutionSizes& s = d.sizes;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(s)));
    const Extents items = whole(s.items), results = whole(d.results);
    Shape w_shape{s.outputs};
    w_shape.insert(w_shape.end(), s.kernel.begin(), s.kernel.end());
    w_shape.push_back(s.channels / s.groups);
    OwnedTensor x(MUSTER_F32, shape_of(s.samples, items, s.channels));
    OwnedTensor y(MUSTER_F32, shape_of(s.samples, results, s.outputs)), w(MUSTER_F32, w_shape);
    const Tensor none{};
    const std::pair<std::int32_t, Args> all[] = {
        {MUSTER_KERNEL_CONVOLUTION_FORWARD,
         args_with({x.view(), w.view(), none, y.view()}, ints_of(s, items, results, results))},
        {MUSTER_KERNEL_CONVOLUTION_DGRAD,
         args_with({y.view(), w.view(), x.view()}, ints_of(s, items, results, items))},
        {MUSTER_KERNEL_CONVOLUTION_WGRAD,
         args_with({y.view(), x.view(), w.view(), none}, ints_of(s, items, results, results))}};
    for (auto [op, args] : all) {
      // As in an engine, a thread makes the plan that launches nothing.
      if (seed % 4 != 0) std::thread([op = op, &mine = args] { prepare(row(op), mine); }).join();
      Kernel bare = row(op);
      bare.prepare = nullptr;
      const std::string said = said_by(bare, args);
      const bool generates = said.find("create:cache_miss,cpu,convolution") != std::string::npos;
      if (seed % 4 != 0) EXPECT_FALSE(generates) << said;
      generated += generates ? 1 : 0;
      launched += said.find("exec,cpu,convolution") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(generated, 10u);
  EXPECT_GT(launched, 60u);
}

TEST(Convolution, RefusesByName) {
  OwnedTensor x(MUSTER_F32, {1, 8, 3}), w(MUSTER_F32, {4, 3, 3}), bias(MUSTER_F32, {4}),
      y(MUSTER_F32, {1, 8, 4});
  ConvolutionSizes s;
  s.items = {8};
  s.kernel = {3};
  s.stride = s.dilation = {1};
  s.before = s.after = {1};
  const Extents all{{0, 8}};
  const auto refused = [&](const char* text, auto change) {
    Args args = args_with({x.view(), w.view(), bias.view(), y.view()}, ints_of(s, all, all, all));
    change(args);
    expect_refused(row(MUSTER_KERNEL_CONVOLUTION_FORWARD), args, text);
  };
  refused("groups", [](Args& a) { a.ints[0] = 0; });
  refused("stride", [](Args& a) { a.ints[2] = 0; });
  refused("dilation", [](Args& a) { a.ints[6] = 2; });
  refused("before", [](Args& a) { a.ints[8] = -1; });
  refused("offset", [](Args& a) { a.ints[17] = 9; });
  refused("length", [](Args& a) { a.ints[20] = 9; });
  refused("x", [](Args& a) { a.tensors[0].size[2] = 4; });
  refused("y", [](Args& a) { a.tensors[3].size[2] = 5; });
  refused("dims", [](Args& a) { a.tensors[1].dims = 2; });
  Args many = args_with({x.view(), w.view(), bias.view(), y.view()}, ints_of(s, all, all, all));
  many.ints[0] = 3;
  expect_refused(row(MUSTER_KERNEL_CONVOLUTION_FORWARD), many, "x");
}

}  // namespace
}  // namespace muster::kernels::test
