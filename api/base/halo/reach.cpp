#include "api/base/halo/reach.hpp"

#include <algorithm>

namespace muster::halo {

Result<Reach> Reach::make(std::span<const Window> layers, std::int64_t items) {
  if (layers.empty() || layers.size() > kLayersMax)
    return fail(Code::kBadArgument, "there are {} layers; they must be 1 to {}", layers.size(), kLayersMax);
  Reach reach;
  reach.windows_.assign(layers.begin(), layers.end());
  reach.lengths_.push_back(items);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const auto where = [&] { return layers.size() == 1 ? "" : fmt::format("layer {}: ", layer); };
    if (Status fits = layers[layer].check(reach.lengths_.back()); !fits.ok())
      return fail(fits.code(), "{}{}", where(), fits.message());
    if (layers.size() > 1 && layers[layer].pad != Window::Pad::kZeros)
      return fail(Code::kUnsupported,
                  "layer {} has {} pads; only layers with pads of zeros share one exchange", layer,
                  pad_name(layers[layer].pad));
    reach.lengths_.push_back(layers[layer].results(reach.lengths_.back()));
  }
  return reach;
}

Result<Reach> Reach::gradient() const {
  if (layers() > 1 || is_gradient_)
    return fail(Code::kUnsupported,
                "the gradient of {} layers is computed layer by layer; return the gradients of their ghosts",
                layers());
  if (pad() != Window::Pad::kZeros)
    return fail(Code::kUnsupported,
                "gradients of results cannot be fetched where pads are {}; return the gradients of ghosts",
                pad_name(pad()));
  Reach reach = *this;
  reach.is_gradient_ = true;
  return reach;
}

std::string Reach::text() const {
  std::string text;
  for (const Window& window : windows_) text += (text.empty() ? "" : ", then ") + window.text();
  return is_gradient_ ? "gradient of " + text : text;
}

bool Reach::has_window() const {
  return std::ranges::any_of(windows_, [](const Window& w) { return w.kind != Window::Kind::kEach; });
}

bool Reach::takes_whole_dim() const {
  return std::ranges::any_of(windows_, [](const Window& w) { return w.kind == Window::Kind::kWhole; });
}

Extent Reach::reads(const Extent& results, std::size_t layer) const {
  if (is_gradient_) {
    if (results.length() == 0) return {};
    const Window& window = windows_.front();
    const std::int64_t items = lengths_.front(), all = lengths_.back();
    if (window.kind == Window::Kind::kWhole) return {0, all};
    const auto read = [&](std::int64_t result) { return window.reads({result, result + 1}, items); };
    return {first_where(0, all, [&](std::int64_t o) { return read(o).end > results.begin; }),
            first_where(0, all, [&](std::int64_t o) { return read(o).begin >= results.end; })};
  }
  Extent extent = results;
  for (std::size_t i = windows_.size(); i-- > layer;) extent = windows_[i].reads(extent, lengths_[i]);
  return extent;
}

Extent Reach::reads(const Extent& results) const {
  return reads(results, 0);
}

std::vector<std::int64_t> Reach::boundaries(std::vector<std::int64_t> starts) const {
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const std::int64_t stride = windows_[i].stride;
    const bool aligned = std::ranges::all_of(starts, [&](std::int64_t a) { return a % stride == 0; });
    for (std::int64_t& start : starts) start = windows_[i].boundary(start, lengths_[i], aligned);
  }
  return starts;
}

}  // namespace muster::halo
