// Geometry of a convolution of a field's part: which dense problem computes a box of results, or of items.
//
// Items and results have numbers in the whole field. An array begins at an offset. Items outside of it are
// zeros: a rank holds all items that its results read, but those that are pads of zeros (api/base/halo).
#pragma once

#include "kernels/element.hpp"
#include "kernels/onednn/convolution.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::kernels::convolution {

using Spatial = onednn::Convolution::Spatial;

// A block along the spatial dims, in numbers of the field.
struct Region {
  Spatial begin{}, end{};
  bool empty(std::size_t dims) const;
  friend bool operator==(const Region&, const Region&) = default;
};

// Owns    numbers. Thread  a value; any. Bound  3 spatial dims. Fails  never, for arguments that were
// checked.
struct Geometry {
  // The ints of a row: groups, accumulate, and seven lists of three numbers.
  static constexpr std::size_t kGroups = 0, kAccumulate = 1, kLists = 2, kIntsEnd = kLists + 7 * 3;

  std::size_t dims = 1;
  std::int64_t samples = 0, channels = 0, outputs = 0, groups = 1;
  Spatial kernel{}, stride{}, dilation{}, before{};
  Region source, result;  // what the arrays have
  Region box;             // to be computed

  // `x`, `w` and `y`: operands of these roles.
  static Geometry of(const Args& args, const Tensor& x, const Tensor& w, const Tensor& y);

  std::int64_t span(std::size_t d) const { return dilation[d] * (kernel[d] - 1) + 1; }

  // One sample's problem and the regions that it reads and writes. The rest of the region that was asked for
  // is zero before any bias. Empty: all of it.
  struct Part {
    onednn::Convolution problem;
    Region source, result;
    bool empty = false;
  };
  // Wanted results, from the items of the array; and wanted items' gradients, from the results of the array.
  Part results(const Region& wanted) const { return part(source, wanted); }
  Part items(const Region& wanted) const { return part(wanted, result); }

  // Rows of the box along the outermost spatial dim that make a tile of about so many operations.
  std::int64_t tile_rows(std::int64_t operations) const;
  std::uint32_t tiles(std::int64_t operations) const;  // of one sample
  Region tile(std::int64_t rows, std::uint32_t number) const;

 private:
  // Those of the items and results that have a window in common.
  Part part(const Region& items, const Region& results) const;
};

}  // namespace muster::kernels::convolution
