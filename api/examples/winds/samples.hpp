// Samples: what the model reads and what it should say, as functions of (seed, step, sample): the same on any
// mesh. The balance of winds and geopotential is linear, knows no longitude and no mean height, and is the
// same in a mirror at the equator, but for the sign of winds to the north. So a sample is the learned month
// and some of another copy of it, each turned around the axis and perhaps mirrored, with other mean heights.
// A model that only remembers the month would be wrong at once.
#pragma once

#include "api/examples/winds/field.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace winds {

inline constexpr std::int64_t kInputs =
    kHeights + 2;  // geopotential of each level, sine and cosine of latitude

struct Sample {
  struct Copy {
    double weight = 0.0;
    std::int64_t turn = 0;  // in longitudes
    bool mirrored = false;
  };
  std::int64_t month = 0;
  std::array<Copy, 2> copies{Copy{1.0, 0, false}, Copy{}};
  std::array<double, kHeights> lift{};  // of each level's geopotential, in scale
};

// Rows and columns of a grid.
struct Patch {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  std::int64_t points() const { return rows * columns; }
};

// Owns    the scales of the learned month. The field outlives it.
// Thread  any: it never changes.
// Bound   one row in memory.
// Fails   as the field.
class Samples {
 public:
  Samples(const Field& field, std::int64_t month, std::uint64_t seed);

  const Field& field() const { return field_; }
  const Grid& grid() const { return grid_; }
  std::int64_t month() const { return month_; }
  Sample draw(std::int64_t step, std::int64_t batch, std::int64_t index) const;
  // inputs [rows, columns, kInputs], winds [rows, columns, kWinds], both scaled. Either may be null.
  void read(const Sample& sample, const Patch& patch, float* inputs, float* winds) const;
  std::uint64_t digest() const;  // of the learned month's scales: other data have others
  double wind_scale(std::int64_t wind) const { return scales_[static_cast<std::size_t>(wind)].deviation; }

 private:
  struct Scale {
    double mean = 0.0, deviation = 1.0;  // over the whole month, weighted; a wind's mean is taken as 0
  };
  void add(std::int64_t month, const Sample::Copy& copy, const Patch& patch, std::int64_t variable, float* to,
           std::int64_t step) const;

  const Field& field_;
  const Grid grid_;
  std::int64_t month_;
  std::uint64_t seed_;
  std::array<Scale, kVariables> scales_;
};

}  // namespace winds
