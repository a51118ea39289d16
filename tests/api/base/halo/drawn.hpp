// A random stencil, and the operator that it is of.
#pragma once

#include "tests/api/base/halo/played.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::halo::test {

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
    std::sort(cuts.begin(), cuts.end());
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

struct Drawn {
  Layout layout;
  std::vector<Window> windows;
  Stencil stencil;
  Played played;
  std::string text;
};

// 1 to 3 dims, 1 to 8 ranks along a dim and at most `ranks_max` in all; shards and lengths of results uneven
// or empty.
inline Drawn drawn(Draw& draw, std::uint64_t seed, std::int64_t ranks_max) {
  const auto dims = static_cast<std::size_t>(draw.among(1, 3));
  const std::int64_t longest = dims == 1 ? 24 : dims == 2 ? 9 : 5;
  Items shape, cuts(dims, 1), kernels;
  std::map<std::size_t, Items> lengths;
  std::vector<Window> windows;
  std::vector<Items> results(dims);
  std::string text = fmt::format("seed {}:", seed);
  std::int64_t ranks = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    shape.push_back(draw.among(1, longest));
    windows.push_back(draw.window(shape[d]));
    kernels.push_back(windows[d].kernel);
    if (draw.one_in(4)) continue;
    cuts[d] = std::min(draw.among(2, dims == 1 ? 8 : dims == 2 ? 4 : 2), ranks_max / ranks);
    ranks *= cuts[d];
    if (cuts[d] == 1) continue;
    if (!draw.one_in(4)) lengths[d] = draw.lengths(shape[d], cuts[d]);
    if (draw.one_in(3)) results[d] = draw.lengths(windows[d].results(shape[d]), cuts[d]);
    text += fmt::format("\n  dim {}: over {} ranks [{}], results [{}]", d, cuts[d],
                        lengths.contains(d) ? fmt::format("{}", fmt::join(lengths[d], " ")) : "",
                        fmt::join(results[d], " "));
  }
  for (std::size_t d = 0; d < dims; ++d)
    text += fmt::format("\n  dim {}: {} items; {}", d, shape[d], windows[d].text());
  Layout layout = layout_of(shape, cuts, lengths);
  Result<Stencil> stencil = Stencil::make(layout, windows, results);
  EXPECT_TRUE(stencil.has_value()) << text << stencil.error().text();
  Grid weights = draw.numbers(kernels);
  return {std::move(layout), windows, std::move(stencil).value(), Played(windows, shape, std::move(weights)),
          std::move(text)};
}

}  // namespace muster::halo::test
