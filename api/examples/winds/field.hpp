// Field: months of winds and geopotential on a grid, read row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace winds {

inline constexpr std::int64_t kLevels = 3;               // from the upper one down
inline constexpr std::int64_t kVariables = 3 * kLevels;  // u of each level, then v, then z
inline constexpr std::int64_t kWinds = 2 * kLevels;
inline constexpr std::int64_t kHeights = kLevels;

// A grid of latitudes from the north pole to the south pole, and of longitudes all around.
struct Grid {
  std::int64_t months = 0, rows = 0, columns = 0;
  double latitude(std::int64_t row) const;  // in radians, north is positive
  double weight(std::int64_t row) const;    // of its points: the cosine, 0 or more
  double column_angle() const;              // in radians, from one longitude to the next
};

// Owns    an open file, or all values of vortices.
// Thread  any: it never changes.
// Bound   a file: one row in memory.
// Fails   row: std::runtime_error, for a file that became shorter.
class Field {
 public:
  virtual ~Field() = default;
  virtual Grid grid() const = 0;
  // u and v in m/s, z in m2/s2. `values`: as many as the grid has columns.
  virtual void row(std::int64_t month, std::int64_t variable, std::int64_t row,
                   std::span<float> values) const = 0;
};

// An .npy file: float32, little-endian, C order, [months, 9, rows, columns]. Throws UsageError with the
// file's name, and what is wrong: another shape or type, too few bytes, values that are not finite (and
// where).
std::unique_ptr<Field> open_field(const std::string& path);
// Two months of jets and vortices in balance, as the seed says, on 91 x 180 points.
std::unique_ptr<Field> make_vortices(std::uint64_t seed);

}  // namespace winds
