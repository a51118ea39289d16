// Reach: what of a dim the results of one operator read, or of several one after the other, or of the
// gradient of one.
#pragma once

#include "api/base/halo/window.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::halo {

// Layers of one dim. The results of each are the items of the next one. A rank that computes all layers for
// its results reads deep halos once; it computes the results of a layer that lie in the dim, and takes the
// pad for those that do not. So several layers have pads of zeros.
//
// The gradient of a layer runs the other way: its items are the layer's results, and for each of the layer's
// items it reads all the results that have read it.
//
// Owns    windows, and the length of each layer's items.
// Thread  a value; any.
// Bound   kLayersMax layers.
// Fails   make() and gradient() with kBadArgument and kUnsupported.
class Reach {
 public:
  static constexpr std::size_t kLayersMax = 64;

  static Result<Reach> make(std::span<const Window> layers, std::int64_t items);
  // Only one layer with pads of zeros has one.
  Result<Reach> gradient() const;

  std::size_t layers() const { return windows_.size(); }
  std::int64_t items() const { return is_gradient_ ? lengths_.back() : lengths_.front(); }
  std::int64_t results() const { return is_gradient_ ? lengths_.front() : lengths_.back(); }
  // Whether results lie at other places than the items that they read: the dim has a window.
  bool has_window() const;
  bool takes_whole_dim() const;  // of one rank
  // It lies around the items.
  Window::Pad pad() const { return is_gradient_ ? Window::Pad::kZeros : windows_.front().pad; }

  Extent reads(const Extent& results) const;
  // The items of a layer that a rank computes, or reads, that computes these results. Layer 0 is reads().
  Extent reads(const Extent& results, std::size_t layer) const;
  std::string text() const;  // "convolution of 3, stride 2, dilation 1, pads 1 and 1 of zeros"
  // Where shards of the results begin, if shards of the items begin at `starts`: 0 first, items() last.
  std::vector<std::int64_t> boundaries(std::vector<std::int64_t> starts) const;

 private:
  Reach() = default;

  std::vector<Window> windows_;
  std::vector<std::int64_t> lengths_;  // of each layer's items, and of the last one's results
  bool is_gradient_ = false;
};

// The first of the numbers [begin, end) of which `holds` is true, or end. It is false up to one, then true.
template<class Holds>
std::int64_t first_where(std::int64_t begin, std::int64_t end, Holds holds) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (holds(middle))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

}  // namespace muster::halo
