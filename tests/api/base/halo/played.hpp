// A windowed operator of one channel, played in plain loops: on one rank that has all, and on the ranks of a
// stencil, each of which sees nothing but the array that it holds. It has its own rule for taps and pads.
#pragma once

#include "api/base/halo/stencil.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

namespace muster::halo::test {

using Items = std::vector<std::int64_t>;

// A dense array of any dims, row-major.
struct Grid {
  Items shape;
  std::vector<double> values;

  explicit Grid(Items of = {}, double value = 0);
  static Grid of(const Box& box, double value = 0) {
    return Grid(Items(box.length.begin(), box.length.begin() + static_cast<std::ptrdiff_t>(box.dims)), value);
  }
  double& at(const Items& index) { return values[place(index)]; }
  double at(const Items& index) const { return values[place(index)]; }
  std::size_t place(const Items& index) const;  // asserts that the index is inside
  // Visits each index of a box of the array.
  static void each(const Items& shape, const std::function<void(const Items&)>& visit);
};

// A tap of a window: which weight, and the item that it reads; pads may be read.
struct Tap {
  std::int64_t weight, item;
};

// One layer.
class Played {
 public:
  // Convolutions, transposed or not. weights: of the shape of their kernels.
  Played(std::vector<Window> windows, Items items, Grid weights);

  const Items& items() const { return items_; }
  const Items& results() const { return results_; }

  // ---- on one rank
  Grid forward(const Grid& x) const;
  Grid gradient(const Grid& dy) const;  // of x
  Grid weight_gradient(const Grid& x, const Grid& dy) const;

  // ---- on many: `x` and `dy` are whole, and cut by the stencil
  struct Outcome {
    Grid y, dx, dw;
    std::int64_t moved = 0;    // elements that went to another rank in the forward pass
    std::int64_t fetched = 0;  // in the backward pass where gradients of results are fetched
    Grid dx_fetched;           // computed so; without elements where pads are other than zeros
  };
  Outcome on(const Stencil& stencil, Corners corners, const Grid& x, const Grid& dy) const;

  // Visits the weight and the item of each tap of a result: items are in coordinates of the dim, pads among
  // them where they are not zeros.
  void each_tap(const Items& result, const std::function<void(const Items&, const Items&)>& visit) const;
  double weight(const Items& index) const { return weights_.at(index); }

 private:
  void fetch(const Stencil& stencil, Corners corners, const Grid& dy, Outcome& outcome) const;
  std::vector<Tap> taps_of(std::size_t dim, std::int64_t result) const;
  std::int64_t real(std::size_t dim, std::int64_t item) const;  // which item a pad repeats

  std::vector<Window> windows_;
  Items items_, results_;
  Grid weights_;
  std::vector<std::vector<std::vector<Tap>>> taps_;  // by dim and result
};

// The dims of an index, and an item's index in the array that a rank holds.
Items index_of(const Index& index, std::size_t dims);
Items place(const Halo& halo, const Items& item);
// Visits each item of a box.
void each_of(const Box& box, const std::function<void(const Items&)>& visit);

// Carries what the ranks of a stencil get. Each rank's array is of its `held` box. Fails the test where the
// lists of the two ends do not fit each other.
//
// `add`: the other way, from the last phase to the first: what lies where a segment landed is added to where
// it came from, in the order in which the giver lists its segments.
std::int64_t carry(std::span<const Halo> halos, std::vector<Grid>& held, bool add = false);

// The halos of all ranks; fails the test if one is refused.
std::vector<Halo> halos_of(const Stencil& stencil, Corners corners = Corners::kDirect);

// Ranks whose axes cut `cuts` (by dim; 1: not cut) in the given lengths, or balanced.
Layout layout_of(const Items& shape, const Items& cuts, const std::map<std::size_t, Items>& lengths = {});

}  // namespace muster::halo::test
