// Part: which part of a field a rank has, for one operator with windows over it. It wraps the stencils of
// halo.h. A field here is [samples, latitudes, longitudes, channels].
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <muster/field_kernels.h>
#include <muster/halo.h>

namespace winds {

inline constexpr std::size_t kDims = 4;
using Shape = std::array<std::int64_t, kDims>;
using Windows = std::array<muster_window, kDims>;

struct DestroyLayout {
  void operator()(muster_layout* layout) const { muster_layout_destroy(layout); }
};
using FieldLayout = std::unique_ptr<muster_layout, DestroyLayout>;

// How the ranks of `domain` cut a field: in their order, row by row of a grid of ranks.
struct RankGrid {
  std::int32_t rows = 1, columns = 1;
  std::int64_t ranks() const { return std::int64_t{rows} * columns; }
};
FieldLayout layout_of(const Shape& shape, const RankGrid& cut);

// Owns    the stencil.
// Thread  a value; any.
// Bound   fixed.
// Fails   with RuntimeError.
class Part {
 public:
  Part(const muster_layout* items, const Windows& windows, std::int32_t rank);

  const muster_stencil* stencil() const { return stencil_.get(); }
  const muster_halo_info& info() const { return info_; }
  std::vector<muster_halo_box> boundary() const;  // the results that read ghosts
  std::vector<muster_halo_box> rim() const;       // the ghosts that it holds
  FieldLayout result() const;
  // How many rows of items, or of columns, each rank along that side of the grid has.
  std::vector<std::int64_t> lengths(const RankGrid& cut, std::size_t dim) const;

 private:
  struct Destroy {
    void operator()(muster_stencil* stencil) const { muster_stencil_destroy(stencil); }
  };
  std::unique_ptr<muster_stencil, Destroy> stencil_;
  std::int32_t rank_;
  muster_halo_info info_ = MUSTER_HALO_INFO_INIT;
};

// The windows of a 3x3 convolution to so many channels: zeros beyond the poles, and longitudes wrap.
Windows convolution_windows(std::int64_t stride, std::int64_t channels);
// Those of a linear interpolation to the rows and columns of another field, shared as that is.
Windows raising_windows(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns);

// The box of an array that begins with the item `first`.
muster_tensor box_of(muster_tensor array, const muster_halo_box& first, const muster_halo_box& box);
inline muster_tensor own_of(const muster_tensor& held, const Part& part) {
  return box_of(held, part.info().held, part.info().own);
}
// Channels [first, first + count).
muster_tensor channels_of(muster_tensor field, std::int64_t first, std::int64_t count);

// The numbers of a convolution or an interpolation of that part over a box: of results, or of items.
muster_convolution convolution_of(const Part& part, const Windows& windows, const muster_halo_box& box);
muster_interpolation raising_of(const Part& part, const Shape& items, const Shape& results,
                                const muster_halo_box& box);

}  // namespace winds
