#include "tests/api/base/halo/played.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

namespace muster::halo::test {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

Items sum(Items one, const Items& other) {
  for (std::size_t d = 0; d < one.size(); ++d) one[d] += other[d];
  return one;
}
Items difference(Items one, const Items& other) {
  for (std::size_t d = 0; d < one.size(); ++d) one[d] -= other[d];
  return one;
}

std::int64_t product(const Items& shape) {
  std::int64_t all = 1;
  for (const std::int64_t n : shape) all *= n;
  return all;
}

}  // namespace

Grid::Grid(Items of, double value)
    : shape(std::move(of)), values(static_cast<std::size_t>(product(shape)), value) {}

std::size_t Grid::place(const Items& index) const {
  std::int64_t place = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (index[d] < 0 || index[d] >= shape[d]) {
      ADD_FAILURE() << "index " << ::testing::PrintToString(index) << " of "
                    << ::testing::PrintToString(shape);
      return 0;
    }
    place = place * shape[d] + index[d];
  }
  return static_cast<std::size_t>(place);
}

void Grid::each(const Items& shape, const std::function<void(const Items&)>& visit) {
  if (product(shape) == 0) return;
  Items at(shape.size(), 0);
  for (std::size_t d = 1; d != 0;) {
    visit(at);
    for (d = shape.size(); d > 0 && ++at[d - 1] == shape[d - 1]; --d) at[d - 1] = 0;
  }
}

Items index_of(const Index& index, std::size_t dims) {
  return Items(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(dims));
}
void each_of(const Box& box, const std::function<void(const Items&)>& visit) {
  Grid::each(index_of(box.length, box.dims),
             [&](const Items& i) { visit(sum(i, index_of(box.offset, box.dims))); });
}

// Where an item is in the array that a rank holds.
Items place(const Halo& halo, const Items& item) {
  return difference(item, index_of(halo.held.offset, halo.held.dims));
}

// ---- one rank ----------------------------------------------------------------------------------

Played::Played(std::vector<Window> windows, Items items, Grid weights)
    : windows_(std::move(windows)), items_(std::move(items)), weights_(std::move(weights)) {
  for (std::size_t d = 0; d < windows_.size(); ++d) {
    results_.push_back(windows_[d].results(items_[d]));
    taps_.emplace_back();
    for (std::int64_t o = 0; o < results_[d]; ++o) taps_[d].push_back(taps_of(d, o));
  }
}

// Looks at every item of the dim and its pads, and asks of each weight whether it meets the result.
std::vector<Tap> Played::taps_of(std::size_t dim, std::int64_t result) const {
  const Window& w = windows_[dim];
  if (w.kind == Window::Kind::kEach) return {{0, result}};
  std::vector<Tap> taps;
  for (std::int64_t item = -w.before; item < items_[dim] + w.after; ++item)
    for (std::int64_t k = 0; k < w.kernel; ++k) {
      const bool meets = w.kind == Window::Kind::kTransposed
                             ? item * w.stride - w.before + k * w.dilation == result
                             : result * w.stride - w.before + k * w.dilation == item;
      const bool is_zero = item < 0 || item >= items_[dim];
      if (meets && !(is_zero && w.pad == Window::Pad::kZeros)) taps.push_back({k, item});
    }
  return taps;
}

void Played::each_tap(const Items& result,
                      const std::function<void(const Items&, const Items&)>& visit) const {
  Items counts, weight(result.size()), item(result.size());
  const auto at = [&](std::size_t d) -> const std::vector<Tap>& {
    return taps_[d][static_cast<std::size_t>(result[d])];
  };
  for (std::size_t d = 0; d < result.size(); ++d) counts.push_back(static_cast<std::int64_t>(at(d).size()));
  Grid::each(counts, [&](const Items& chosen) {
    for (std::size_t d = 0; d < result.size(); ++d) {
      const Tap& tap = at(d)[static_cast<std::size_t>(chosen[d])];
      weight[d] = tap.weight;
      item[d] = tap.item;
    }
    visit(weight, item);
  });
}

std::int64_t Played::real(std::size_t dim, std::int64_t item) const {
  const std::int64_t n = items_[dim];
  switch (windows_[dim].pad) {
    case Window::Pad::kCircular:
      return ((item % n) + n) % n;
    case Window::Pad::kReflect:
      return n == 1 ? 0 : item < 0 ? -item : item >= n ? 2 * n - 2 - item : item;
    case Window::Pad::kReplicate:
      return std::clamp<std::int64_t>(item, 0, n - 1);
    case Window::Pad::kZeros:
      break;
  }
  return item;
}

Grid Played::forward(const Grid& x) const {
  Grid y(results_);
  Grid::each(results_, [&](const Items& o) {
    each_tap(o, [&](const Items& weight, Items item) {
      for (std::size_t d = 0; d < item.size(); ++d) item[d] = real(d, item[d]);
      y.at(o) += weights_.at(weight) * x.at(item);
    });
  });
  return y;
}

Grid Played::gradient(const Grid& dy) const {
  Grid dx(items_);
  Grid::each(results_, [&](const Items& o) {
    each_tap(o, [&](const Items& weight, Items item) {
      for (std::size_t d = 0; d < item.size(); ++d) item[d] = real(d, item[d]);
      dx.at(item) += weights_.at(weight) * dy.at(o);
    });
  });
  return dx;
}

Grid Played::weight_gradient(const Grid& x, const Grid& dy) const {
  Grid dw(weights_.shape);
  Grid::each(results_, [&](const Items& o) {
    each_tap(o, [&](const Items& weight, Items item) {
      for (std::size_t d = 0; d < item.size(); ++d) item[d] = real(d, item[d]);
      dw.at(weight) += x.at(item) * dy.at(o);
    });
  });
  return dw;
}

// ---- many --------------------------------------------------------------------------------------

Played::Outcome Played::on(const Stencil& stencil, Corners corners, const Grid& x, const Grid& dy) const {
  Outcome outcome{Grid(results_, kNothing), Grid(items_, kNothing), Grid(weights_.shape), 0, 0, Grid(items_)};
  const std::vector<Halo> halos = halos_of(stencil, corners);
  std::vector<Grid> held, back;
  for (const Halo& halo : halos) {
    held.push_back(Grid::of(halo.held, kNothing));
    each_of(halo.own, [&](const Items& i) { held.back().at(place(halo, i)) = x.at(i); });
    // Interior results need no exchange.
    each_of(halo.interior, [&](const Items& o) {
      double& y = outcome.y.at(o) = 0;
      each_tap(o, [&](const Items& weight, const Items& item) {
        y += weights_.at(weight) * held.back().at(place(halo, item));
      });
      EXPECT_EQ(y, y) << "an interior result reads a ghost";
    });
  }
  outcome.moved = carry(halos, held);
  for (std::size_t rank = 0; rank < halos.size(); ++rank) {
    const Halo& halo = halos[rank];
    back.push_back(Grid::of(halo.held));
    for (const Box& box : halo.boundaries)
      each_of(box, [&](const Items& o) {
        double& y = outcome.y.at(o);
        EXPECT_NE(y, y) << "two boxes have this result";
        y = 0;
        each_tap(o, [&](const Items& weight, const Items& item) {
          y += weights_.at(weight) * held[rank].at(place(halo, item));
        });
      });
    each_of(halo.results, [&](const Items& o) {
      each_tap(o, [&](const Items& weight, const Items& item) {
        outcome.dw.at(weight) += held[rank].at(place(halo, item)) * dy.at(o);
        back[rank].at(place(halo, item)) += weights_.at(weight) * dy.at(o);
      });
    });
  }
  EXPECT_EQ(carry(halos, back, true), outcome.moved);
  for (std::size_t rank = 0; rank < halos.size(); ++rank)
    each_of(halos[rank].own,
            [&](const Items& i) { outcome.dx.at(i) = back[rank].at(place(halos[rank], i)); });

  fetch(stencil, corners, dy, outcome);
  return outcome;
}

void Played::fetch(const Stencil& stencil, Corners corners, const Grid& dy, Outcome& outcome) const {
  const std::size_t dims = items_.size();
  const Result<Stencil> gradient = stencil.gradient();
  if (!gradient) {
    EXPECT_EQ(gradient.error().code(), Code::kUnsupported);
    outcome.dx_fetched = Grid({0});
    return;
  }
  const std::vector<Halo> fetching = halos_of(*gradient, corners);
  std::vector<Grid> gradients;
  for (const Halo& halo : fetching) {
    gradients.push_back(Grid::of(halo.held, kNothing));
    each_of(halo.own, [&](const Items& o) { gradients.back().at(place(halo, o)) = dy.at(o); });
  }
  outcome.fetched = carry(fetching, gradients);
  for (std::size_t rank = 0; rank < fetching.size(); ++rank) {
    const Halo& halo = fetching[rank];
    std::map<Items, bool> interior;
    each_of(halo.interior, [&](const Items& i) { interior[i] = true; });
    each_of(halo.needed, [&](const Items& o) {
      each_tap(o, [&](const Items& weight, const Items& item) {
        for (std::size_t d = 0; d < dims; ++d)
          if (item[d] < halo.results.offset[d] || item[d] >= halo.results.offset[d] + halo.results.length[d])
            return;
        if (interior.contains(item))
          for (std::size_t d = 0; d < dims; ++d)
            EXPECT_TRUE(o[d] >= halo.own.offset[d] && o[d] < halo.own.offset[d] + halo.own.length[d])
                << "an interior gradient reads a ghost";
        outcome.dx_fetched.at(item) += weights_.at(weight) * gradients[rank].at(place(halo, o));
      });
    });
  }
}

std::int64_t carry(std::span<const Halo> halos, std::vector<Grid>& held, bool add) {
  std::size_t phases = 1;
  for (const Halo& halo : halos)
    for (const Segment& segment : halo.gets) phases = std::max(phases, segment.phase + 1);
  std::int64_t moved = 0;
  for (std::size_t step = 0; step < phases; ++step) {
    const std::size_t phase = add ? phases - 1 - step : step;
    const std::vector<Grid> before = held;
    for (std::size_t giver = 0; giver < halos.size(); ++giver) {
      std::map<std::int64_t, std::size_t> taken;  // of this giver's, by getter
      std::int64_t inbox = 0;
      for (const Segment& give : halos[giver].gives) {
        EXPECT_EQ(give.inbox, inbox);
        const std::size_t dims = halos[giver].own.dims;
        inbox += give.elements(dims);
        if (give.phase != phase) continue;
        std::vector<Segment> theirs;
        for (const Segment& get : halos[static_cast<std::size_t>(give.peer)].gets)
          if (get.phase == phase && get.peer == static_cast<std::int64_t>(giver)) theirs.push_back(get);
        const std::size_t number = taken[give.peer]++;
        EXPECT_LT(number, theirs.size()) << "a rank gets less than it is given";
        if (number >= theirs.size()) return moved;
        const Segment& get = theirs[number];
        EXPECT_EQ(std::tie(give.from, give.at, give.length), std::tie(get.from, get.at, get.length));
        Grid& getter = held[static_cast<std::size_t>(give.peer)];
        const Grid& source = before[giver];
        if (give.peer != static_cast<std::int64_t>(giver)) moved += give.elements(dims);
        Grid::each(index_of(give.length, dims), [&](const Items& i) {
          const Items from = sum(i, index_of(give.from, dims)), at = sum(i, index_of(give.at, dims));
          if (add) {
            held[giver].at(from) += before[static_cast<std::size_t>(give.peer)].at(at);
          } else {
            double& landing = getter.at(at);
            EXPECT_NE(landing, landing) << "a ghost lands where something is";
            landing = source.at(from);
            EXPECT_EQ(landing, landing) << "a rank gives what it does not have";
          }
        });
      }
      for (std::size_t getter = 0; getter < halos.size(); ++getter) {
        std::size_t wanted = 0;
        for (const Segment& get : halos[getter].gets)
          if (get.phase == phase && get.peer == static_cast<std::int64_t>(giver)) ++wanted;
        EXPECT_EQ(taken[static_cast<std::int64_t>(getter)], wanted) << "a rank waits for what nobody gives";
      }
    }
  }
  return moved;
}

std::vector<Halo> halos_of(const Stencil& stencil, Corners corners) {
  std::vector<Halo> halos;
  for (std::int64_t rank = 0; rank < stencil.layout().ranks(); ++rank) {
    Result<Halo> halo = stencil.halo(rank, corners);
    EXPECT_TRUE(halo.has_value()) << halo.error().text();
    if (halo) halos.push_back(*std::move(halo));
  }
  return halos;
}

Layout layout_of(const Items& shape, const Items& cuts, const std::map<std::size_t, Items>& lengths) {
  std::vector<Layout::Axis> axes;
  for (std::size_t d = 0; d < cuts.size(); ++d) {
    if (cuts[d] == 1) continue;
    const auto given = lengths.find(d);
    axes.push_back(
        {fmt::format("axis{}", d), cuts[d],
         Placement::shard(static_cast<std::int32_t>(d),
                          given == lengths.end() ? Split::balanced() : Split::given(given->second))});
  }
  Result<Layout> layout = Layout::make(shape, std::move(axes));
  EXPECT_TRUE(layout.has_value()) << layout.error().text();
  return layout.value();
}

}  // namespace muster::halo::test
