// Window: which items of one dim the results of an operator read. All in global coordinates, as one rank that
// has the whole dim would count.
//
// Sources of the rules: ConvNd, ConvTransposeNd, MaxPool and Upsample of PyTorch, whose lengths and taps
// these are. How uneven shards meet them: boundary().
#pragma once

#include "api/base/result.hpp"

#include <cstdint>
#include <string>

namespace muster::halo {

// Items [begin, end) of a dim. Before 0 and from the dim's length on lie its pads.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t length() const { return end > begin ? end - begin : 0; }
  bool has(const Extent& other) const {
    return other.length() == 0 || (begin <= other.begin && other.end <= end);
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};
// The part of `one` that lies in `other`. Empty: begin == end, at the side of `other` where `one` lies.
Extent common(const Extent& one, const Extent& other);

// One dim of an operator. With N items, E = dilation·(kernel-1)+1, pads b before and a after:
//
//   each         result o reads item o
//   whole        `length` results, each of which reads all items: the channels of a convolution
//   convolution  ⌊(N+b+a-E)/stride⌋+1 results; o reads E items from o·stride-b on
//   pool         as a convolution; with `ceil`, rounded up, if the last window begins before N+b
//   transposed   (N-1)·stride-b-a+E+extra results; o reads the items i for which it is one of the E results
//                from i·stride-b on. Its pads crop the result
//   nearest, nearest_exact, linear, linear_aligned (corners), cubic, area
//                `length` results, or ⌊N·scale⌋ if that is 0; o reads the items around o·N/length, or o/scale
//
// Owns    its numbers.
// Thread  a value; any.
// Bound   kItemsMax items and results, kNumberMax of every other number.
// Fails   check(); the rest is for what check() passes.
struct Window {
  enum class Kind : std::uint8_t {
    kEach,
    kWhole,
    kConvolution,
    kPool,
    kTransposed,
    kNearest,
    kNearestExact,
    kLinear,
    kLinearAligned,
    kCubic,
    kArea,
  };
  // Pads have zeros (or what the kernel takes for nothing), or items of the dim.
  enum class Pad : std::uint8_t { kZeros, kCircular, kReflect, kReplicate };

  static constexpr std::int64_t kItemsMax = std::int64_t{1} << 60;
  static constexpr std::int64_t kNumberMax = std::int64_t{1} << 31;

  Kind kind = Kind::kEach;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t before = 0;
  std::int64_t after = 0;
  Pad pad = Pad::kZeros;
  bool ceil = false;
  std::int64_t extra = 0;
  std::int64_t length = 0;
  double scale = 0;
  friend bool operator==(const Window&, const Window&) = default;

  // Errors: kBadArgument, naming the number; the sentence does not name the dim.
  Status check(std::int64_t items) const;

  std::int64_t span() const { return dilation * (kernel - 1) + 1; }  // E
  std::int64_t results(std::int64_t items) const;
  // All that the results read, as one extent; empty if there are none. For results in rising order it rises
  // at both ends. Pads of zeros are left out of it.
  Extent reads(const Extent& results, std::int64_t items) const;

  // A result of nearest, nearest_exact, linear, linear_aligned is (1-next)·item[first] + next·item[first+1].
  struct Mix {
    std::int64_t first = 0;
    double next = 0;  // 0: the other item is not read
  };
  Mix mix(std::int64_t result, std::int64_t items) const;

  // Where the results of the rank begin whose items begin at `start`, by the rule that keeps shards alike
  // from layer to layer: the rank has the results whose windows are centred in its items. 0 for the first,
  // results() for items(). `aligned`: all shards begin at multiples of the stride.
  std::int64_t boundary(std::int64_t start, std::int64_t items, bool aligned) const;

  std::string name() const;  // "convolution"
  std::string text() const;  // "convolution of 3, stride 2, dilation 1, pads 1 and 1 of zeros"

 private:
  bool interpolates() const { return kind >= Kind::kNearest; }
  Status check_interpolation(std::int64_t items) const;
  Extent taps(std::int64_t result, std::int64_t items) const;  // interpolation
};

const char* pad_name(Window::Pad pad);

// Numbers of any sign, divided and rounded up, or down.
std::int64_t ceil_divided(std::int64_t number, std::int64_t by);
std::int64_t floor_divided(std::int64_t number, std::int64_t by);

}  // namespace muster::halo
