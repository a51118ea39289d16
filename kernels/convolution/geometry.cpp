#include "kernels/convolution/geometry.hpp"

#include "api/base/halo/window.hpp"

#include <algorithm>

namespace muster::kernels::convolution {
namespace {

// Each tile brings the weights into the library's order, which takes the time of some hundred operations
// each.
constexpr double kOperationsPerWeight = 2000;

}  // namespace

bool Region::empty(std::size_t dims) const {
  for (std::size_t d = 0; d < dims; ++d)
    if (end[d] <= begin[d]) return true;
  return false;
}

Geometry Geometry::of(const Args& args, const Tensor& x, const Tensor& w, const Tensor& y) {
  Geometry g;
  g.dims = static_cast<std::size_t>(x.dims) - 2;
  g.samples = x.size[0];
  g.channels = x.size[g.dims + 1];
  g.outputs = y.size[g.dims + 1];
  g.groups = args.ints[kGroups];
  const auto list = [&](std::size_t number, std::size_t d) { return args.ints[kLists + number * 3 + d]; };
  for (std::size_t d = 0; d < g.dims; ++d) {
    g.kernel[d] = w.size[d + 1];
    g.stride[d] = list(0, d);
    g.dilation[d] = list(1, d);
    g.before[d] = list(2, d);
    g.source.begin[d] = list(3, d);
    g.source.end[d] = list(3, d) + x.size[d + 1];
    g.result.begin[d] = list(4, d);
    g.result.end[d] = list(4, d) + y.size[d + 1];
    g.box.begin[d] = list(5, d);
    g.box.end[d] = list(5, d) + list(6, d);
  }
  return g;
}

Geometry::Part Geometry::part(const Region& items, const Region& results) const {
  Part part;
  part.problem = {dims, channels, outputs, groups, {}, {}, kernel, stride, dilation, {}, {}, false};
  for (std::size_t d = 0; d < dims; ++d) {
    // Results whose windows have one of the items.
    const std::int64_t first = halo::floor_divided(items.begin[d] + before[d] - span(d), stride[d]) + 1;
    const std::int64_t last = halo::floor_divided(items.end[d] - 1 + before[d], stride[d]);
    part.result.begin[d] = std::max(results.begin[d], first);
    part.result.end[d] = std::min(results.end[d], last + 1);
    const std::int64_t low = part.result.begin[d] * stride[d] - before[d];
    const std::int64_t high = (part.result.end[d] - 1) * stride[d] - before[d] + span(d);
    part.source.begin[d] = std::max(low, items.begin[d]);
    part.source.end[d] = std::min(high, items.end[d]);
    part.problem.before[d] = part.source.begin[d] - low;
    part.problem.after[d] = high - part.source.end[d];
    part.problem.source[d] = part.source.end[d] - part.source.begin[d];
    part.problem.result[d] = part.result.end[d] - part.result.begin[d];
  }
  part.empty = part.result.empty(dims) || part.source.empty(dims);
  return part;
}

std::int64_t Geometry::tile_rows(std::int64_t operations) const {
  const std::int64_t rows = std::max<std::int64_t>(box.end[0] - box.begin[0], 1);
  double weights = static_cast<double>(outputs) * static_cast<double>(channels / groups);
  for (std::size_t d = 0; d < dims; ++d) weights *= static_cast<double>(kernel[d]);
  double points = 1;  // of a row
  for (std::size_t d = 1; d < dims; ++d) points *= static_cast<double>(box.end[d] - box.begin[d]);
  const double of_tile = std::max(static_cast<double>(operations), kOperationsPerWeight * weights);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(of_tile / std::max(2 * weights * points, 1.0)), 1,
                                  rows);
}

std::uint32_t Geometry::tiles(std::int64_t operations) const {
  return box.empty(dims) ? 0 : parts_of(box.end[0] - box.begin[0], tile_rows(operations));
}

Region Geometry::tile(std::int64_t rows, std::uint32_t number) const {
  Region region = box;
  const Range range = range_of(box.end[0] - box.begin[0], rows, number);
  region.begin[0] = box.begin[0] + range.begin;
  region.end[0] = box.begin[0] + range.end;
  return region;
}

}  // namespace muster::kernels::convolution
