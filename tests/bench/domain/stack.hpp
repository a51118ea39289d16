// Stack: layers over one field, as the bench program names them, and the numbers that every side begins with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::bench::domain {

inline constexpr double kNormEpsilon = 1e-5;

// Sizes of a field of one sample. Its items lie row by row, and the channels of an item end to end.
struct FieldSize {
  std::int64_t rows = 0, columns = 0, channels = 0;
  std::int64_t elements() const { return rows * columns * channels; }
};

// A convolution with equal windows along rows and columns, or a group norm.
struct StackLayer {
  enum class Kind : std::uint8_t { kConvolution, kNorm };
  Kind kind = Kind::kConvolution;
  std::int64_t out = 0, kernel = 1, stride = 1, pad = 0;  // of a convolution
  bool is_circular = false;                               // its pads; else they are zeros
  std::int64_t groups = 1;                                // of a norm
  FieldSize before, after;
  std::int64_t parameters() const {
    return kind == Kind::kNorm ? 2 * before.channels : out * kernel * kernel * before.channels;
  }
};

// Owns    a description.
// Thread  a value; any.
// Bound   none.
// Fails   reading, by what the library of JSON throws.
struct Stack {
  std::string name;
  FieldSize field;
  std::vector<std::int64_t> lengths;  // rows of each rank
  double base = 0, spread = 1;        // values of the field lie around the one, by the other at most
  bool is_weighted = true;            // the mean has a weight for each element
  std::int64_t steps = 1;
  std::vector<StackLayer> layers;

  FieldSize result() const { return layers.empty() ? field : layers.back().after; }
  std::int64_t parameters() const;

  // Elements [first, first + count), the same on all sides.
  std::vector<float> input(std::int64_t first, std::int64_t count) const;
  std::vector<float> mean_weights(std::int64_t first, std::int64_t count) const;
  // Those of a convolution are [out, kernel, kernel, channels]; a norm has its scales and then its shifts.
  std::vector<float> parameters_of(std::size_t layer) const;

 private:
  std::vector<float> uniforms(std::string_view stream, std::int64_t first, std::int64_t count, double middle,
                              double reach) const;
};

std::vector<Stack> stacks_in(const std::string& path);

}  // namespace muster::bench::domain
