// Stencil: the planner of halos (decision D11). It says what each rank needs of whom to compute its part of
// an operator whose results read their neighbours.
#pragma once

#include "api/base/halo/cut_dim.hpp"
#include "api/base/halo/halo.hpp"
#include "api/base/layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::halo {

// The layout has one axis for each dim that a window runs along and that is cut. Axes that cut other dims,
// and axes of replicas, make no neighbours: these have the same coordinates along them.
//
// Owns    the cells of each dim with a window, and both layouts.
// Thread  a value; any. make() takes the time of the ranks along each axis; halo() that of the neighbours.
// Bound   kSegmentsMax segments of a rank, either way.
// Fails   make() and gradient() with kBadArgument and kUnsupported, which name the dim; halo() with
//         kNoResource. The sentence is the same on every rank, but that of halo().
class Stencil {
 public:
  // `windows`: those of the first layer, one for each dim, then those of the next. `lengths`: by dim, how
  // many results each rank along its axis has; none: as boundary() says.
  static Result<Stencil> make(const Layout& layout, std::span<const Window> windows,
                              std::span<const std::vector<std::int64_t>> lengths = {});
  // The other way: its items are the results of this one, and its results the items. A rank reads the
  // gradients of results from which it computes those of its items, whole: nothing is added at other ranks.
  Result<Stencil> gradient() const;

  const Layout& layout() const { return items_; }
  const Layout& result() const { return results_; }
  std::size_t layers() const { return layers_; }
  std::string text() const;  // all that ranks must have alike
  // The phases in which some rank gets something, in rising order: the same on every rank.
  std::vector<std::size_t> phases(Corners corners) const;

  // `rank`: of the layout.
  Result<Halo> halo(std::int64_t rank, Corners corners = Corners::kDirect) const;

 private:
  struct Dim {
    std::optional<CutDim> cells;      // if a window runs along it
    std::optional<std::size_t> axis;  // which cuts it
  };

  Stencil(Layout items, Layout results) : items_(std::move(items)), results_(std::move(results)) {}
  static Result<Dim> dim_of(const Layout& layout, std::size_t dim, const Reach& reach,
                            std::span<const std::int64_t> lengths);
  Result<std::vector<Cell>> cells_of(std::int64_t rank) const;

  Layout items_;
  Layout results_;
  std::size_t layers_ = 1;
  std::vector<Dim> dims_;
};

}  // namespace muster::halo
