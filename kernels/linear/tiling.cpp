#include "kernels/linear/tiling.hpp"

#include <cmath>

namespace muster::kernels::linear {
namespace {

// About 250 µs of one core at 100 Gflop/s.
constexpr double kFlopsPerTile = 25e6;
// 1 MiB of f32 results, which limits the tile of a product with few terms.
constexpr double kElementsPerTile = 256 * 1024;
// Below this a tile's packing costs more than its arithmetic.
constexpr std::int64_t kSideMin = 64;

std::int64_t round_up(double value, std::int64_t unit) {
  return static_cast<std::int64_t>(std::ceil(value / static_cast<double>(unit))) * unit;
}

}  // namespace

Tiling Tiling::of(std::int64_t m, std::int64_t n, std::int64_t k) {
  const double terms = static_cast<double>(std::max<std::int64_t>(k, 1));
  const double area = std::min(kElementsPerTile, kFlopsPerTile / (2.0 * terms));
  const double side = std::sqrt(area);
  // Whole rows of the output if that leaves a tile enough rows; else a square.
  const double width = static_cast<double>(std::max<std::int64_t>(n, 1));
  const bool whole_rows = width <= side || width * static_cast<double>(kSideMin) <= area;
  const double columns = whole_rows ? width : side;
  const std::int64_t columns_of_tile =
      std::min(std::max<std::int64_t>(n, 1), std::max(kSideMin, round_up(columns, 16)));
  const double rows = area / static_cast<double>(columns_of_tile);
  return {m, n, std::max(kSideMin, round_up(rows, 16)), columns_of_tile};
}

}  // namespace muster::kernels::linear
