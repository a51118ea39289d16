// Random stencils, held against the same operator on one rank.
#include "tests/api/base/halo/played.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace muster::halo::test {
namespace {

// All that a seed says.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t among(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t many) { return among(1, many) == 1; }

  // Lengths of `ranks` shards; some are empty.
  Items lengths(std::int64_t items, std::int64_t ranks) {
    Items cuts{0, items};
    for (std::int64_t i = 1; i < ranks; ++i) cuts.push_back(among(0, items));
    std::ranges::sort(cuts);
    Items lengths;
    for (std::size_t i = 1; i < cuts.size(); ++i) lengths.push_back(cuts[i] - cuts[i - 1]);
    return lengths;
  }
  Window window(std::int64_t items) {
    for (;;) {
      Window window;
      window.kind = one_in(4) ? Window::Kind::kTransposed : Window::Kind::kConvolution;
      window.kernel = among(1, 7);
      window.stride = among(1, 4);
      window.dilation = among(1, 3);
      window.before = among(0, 6);
      window.after = among(0, 6);
      if (window.kind == Window::Kind::kTransposed)
        window.extra = among(0, std::max(window.stride, window.dilation) - 1);
      else
        window.pad = static_cast<Window::Pad>(one_in(2) ? among(1, 3) : 0);
      if (window.check(items).ok()) return window;
    }
  }
  Grid numbers(const Items& shape) {
    Grid grid(shape);
    for (double& value : grid.values) value = static_cast<double>(among(-9, 9));
    return grid;
  }

 private:
  std::mt19937_64 random_;
};

std::string text_of(const Window& w) {
  return fmt::format("{} kernel {} stride {} dilation {} pads {} {} {} extra {}", w.name(), w.kernel,
                     w.stride, w.dilation, w.before, w.after, pad_name(w.pad), w.extra);
}

void play(std::uint64_t seed) {
  Draw draw(seed);
  const auto dims = static_cast<std::size_t>(draw.among(1, 3));
  const std::int64_t longest = dims == 1 ? 24 : dims == 2 ? 9 : 5;
  Items shape, cuts(dims, 1), kernels;
  std::map<std::size_t, Items> lengths;
  std::vector<Window> windows;
  std::vector<Items> results(dims);
  std::string text = fmt::format("seed {}:", seed);
  for (std::size_t d = 0; d < dims; ++d) {
    shape.push_back(draw.among(1, longest));
    windows.push_back(draw.window(shape[d]));
    kernels.push_back(windows[d].kernel);
    if (draw.one_in(4) && d > 0) continue;
    cuts[d] = draw.among(2, dims == 1 ? 8 : dims == 2 ? 4 : 2);
    if (!draw.one_in(4)) lengths[d] = draw.lengths(shape[d], cuts[d]);
    if (draw.one_in(3)) results[d] = draw.lengths(windows[d].results(shape[d]), cuts[d]);
  }
  for (std::size_t d = 0; d < dims; ++d)
    text += fmt::format("\n  dim {}: {} items over {} [{}], results [{}]; {}", d, shape[d], cuts[d],
                        fmt::join(lengths[d], " "), fmt::join(results[d], " "), text_of(windows[d]));
  SCOPED_TRACE(text);
  for (std::size_t d = 0; d < dims; ++d)
    if (lengths[d].empty()) lengths.erase(d);
  const Layout layout = layout_of(shape, cuts, lengths);
  const Result<Stencil> stencil = Stencil::make(layout, windows, results);
  ASSERT_TRUE(stencil.has_value()) << stencil.error().text();
  const Played played(windows, shape, draw.numbers(kernels));
  const Grid x = draw.numbers(shape), dy = draw.numbers(played.results());
  const Grid y = played.forward(x), dx = played.gradient(dy), dw = played.weight_gradient(x, dy);
  for (const Corners corners : {Corners::kDirect, Corners::kByDims}) {
    const Played::Outcome outcome = played.on(*stencil, corners, x, dy);
    EXPECT_EQ(outcome.y.values, y.values);
    EXPECT_EQ(outcome.dx.values, dx.values);
    EXPECT_EQ(outcome.dw.values, dw.values);
    if (!outcome.dx_fetched.values.empty()) EXPECT_EQ(outcome.dx_fetched.values, dx.values);
  }
}

// Goal:   whatever the shape, the shards and the windows: what the ranks compute from what they hold is what
// one
//         rank computes, forward and backward, by either way of corners; and the lists of all ranks fit
//         together.
TEST(HaloCases, AreWhatOneRankComputes) {
  const std::uint64_t cases = muster::test::property_cases(3'000);
  for (std::uint64_t seed = 0; seed < cases && !::testing::Test::HasFailure(); ++seed) play(seed);
}

}  // namespace
}  // namespace muster::halo::test
