// How a matrix product is cut into parts: a pure function of its sizes.
#pragma once

#include "kernels/element.hpp"

#include <cstdint>

namespace muster::kernels::linear {

// Tiles of rows × columns of an output [m, n], in row-major order of tiles.
//
// Owns    four numbers. Thread  a value; any.
// Bound   the tiles cover the output, and do not overlap.  Fails   never.
class Tiling {
 public:
  // For a product over k terms.
  static Tiling of(std::int64_t m, std::int64_t n, std::int64_t k);

  std::uint32_t count() const { return parts_of(m_, rows_) * across(); }
  Range rows(std::uint32_t tile) const { return range_of(m_, rows_, tile / across()); }
  Range columns(std::uint32_t tile) const { return range_of(n_, columns_, tile % across()); }

 private:
  Tiling(std::int64_t m, std::int64_t n, std::int64_t rows, std::int64_t columns)
      : m_(m), n_(n), rows_(rows), columns_(columns) {}
  std::uint32_t across() const { return parts_of(n_, columns_); }

  std::int64_t m_;
  std::int64_t n_;
  std::int64_t rows_;
  std::int64_t columns_;
};

}  // namespace muster::kernels::linear
