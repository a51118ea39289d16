// Halo: one rank's part of a windowed operator, and the segments that it gets and gives.
#pragma once

#include "api/base/halo/cut_dim.hpp"
#include "api/base/layout/box.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::halo {

// A block that travels between two ranks, or from a rank to itself, where it is read in a pad.
struct Segment {
  std::int64_t peer = 0;  // the other end
  std::size_t phase = 0;  // the exchange in which it travels
  Index from{};           // its first element, in the array that the giver holds
  Index at{};             // and in the one that the getter holds
  Index length{};
  std::int64_t inbox = 0;  // elements of the segments before it: where gradients that come back may lie

  std::int64_t elements(std::size_t dims) const;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Boxes are in coordinates of the tensor; `held` and `needed` may begin before 0, in a pad.
struct Halo {
  Box own;     // the rank's items
  Box needed;  // read by its results
  Box held;    // the array in which it has both
  Box results;
  Box interior;                 // results that read nothing but own items
  std::vector<Box> boundaries;  // the other results, as boxes that do not overlap
  std::vector<Box> layers;      // results of each layer but the last that the rank computes
  std::vector<Segment> gets;    // by phase, by peer, and by where they land: so both ends count alike
  std::vector<Segment> gives;
  std::int64_t elements_in = 0;  // from other ranks
  std::int64_t elements_out = 0;
};

// How the elements come that lie beside a rank in two dims or more.
enum class Corners : std::uint8_t {
  kDirect,  // from their owners, in one exchange
  kByDims,  // one exchange for each dim, of what the ones before have brought too
};

// A rank along one dim.
struct Cell {
  const CutDim* dim;    // null: no window runs along it
  std::size_t number;   // in the dim
  std::int64_t stride;  // how far apart ranks are whose numbers differ by 1; 0: the dim is not cut
  Extent own, results, needed, held, interior;
};

// Fills in what a rank gets and gives; `cells`: one for each dim. Errors: kNoResource.
inline constexpr std::size_t kSegmentsMax = 1 << 16;
Status add_segments(std::int64_t rank, std::span<const Cell> cells, Corners corners, Halo& halo);

}  // namespace muster::halo
