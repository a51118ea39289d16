#include "api/base/halo/stencil.hpp"

#include <algorithm>
#include <utility>

namespace muster::halo {
namespace {

void set(Box& box, std::size_t dim, const Extent& extent) {
  box.offset[dim] = extent.begin;
  box.length[dim] = extent.length();
}

// The rest of `whole` beside `part`, dim by dim.
std::vector<Box> peeled(const Box& whole, const Box& part) {
  if (whole.elements() == 0) return {};
  if (part.elements() == 0) return {whole};
  std::vector<Box> slabs;
  Box rest = whole;
  for (std::size_t d = 0; d < whole.dims; ++d) {
    const Extent all{whole.offset[d], whole.offset[d] + whole.length[d]};
    const Extent inner{part.offset[d], part.offset[d] + part.length[d]};
    for (const Extent& side : {Extent{all.begin, inner.begin}, Extent{inner.end, all.end}}) {
      if (side.length() == 0) continue;
      slabs.push_back(rest);
      set(slabs.back(), d, side);
    }
    set(rest, d, inner);
  }
  return slabs;
}

Status check_size(const Box& held) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < held.dims; ++d)
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(held.length[d], 1), &elements))
      return failure(Code::kNoResource, "the items of a rank and their ghosts are 2^63 elements or more");
  return {};
}

}  // namespace

// ---- once for all ranks ------------------------------------------------------------------------

Result<Stencil::Dim> Stencil::dim_of(const Layout& layout, std::size_t dim, const Reach& reach,
                                     std::span<const std::int64_t> lengths) {
  Dim made;
  for (std::size_t axis = 0; axis < layout.axes().size(); ++axis) {
    const Layout::Axis& a = layout.axes()[axis];
    if (a.placement.kind != Placement::Kind::kShard || a.ranks == 1 ||
        a.placement.dim != static_cast<std::int32_t>(dim))
      continue;
    if (made.axis && reach.has_window())
      return fail(Code::kUnsupported, "{} and {} both cut it; a halo runs along one axis",
                  layout.axis_text(*made.axis), layout.axis_text(axis));
    made.axis = axis;
  }
  if (!reach.has_window()) return Dim{};
  if (made.axis && reach.takes_whole_dim())
    return fail(Code::kUnsupported,
                "{} cuts it, but each result reads all of it; that is a product over tensor parallel ranks",
                layout.axis_text(*made.axis));
  std::vector<std::int64_t> starts{0};
  for (std::int64_t c = 0; made.axis && c < layout.axes()[*made.axis].ranks; ++c) {
    const auto part = layout.intervals(c * layout.stride(*made.axis), dim);
    if (part.size() > 1)
      return fail(Code::kUnsupported, "a rank has several parts of it (fused); a halo needs one");
    starts.push_back(starts.back() + (part.empty() ? 0 : part.front().length));
  }
  if (!made.axis) starts.push_back(reach.items());
  std::vector<std::int64_t> boundaries = reach.boundaries(starts);
  if (!lengths.empty()) {
    if (lengths.size() != starts.size() - 1)
      return fail(Code::kBadArgument, "{} lengths of the result are given, but {} ranks cut it",
                  lengths.size(), starts.size() - 1);
    if (std::ranges::any_of(lengths, [](std::int64_t n) { return n < 0 || n > Window::kItemsMax; }))
      return fail(Code::kBadArgument, "a length of the result is below 0 or above 2^60");
    for (std::size_t c = 0; c < lengths.size(); ++c) {
      boundaries[c + 1] = boundaries[c] + lengths[c];
      if (boundaries[c + 1] > reach.results()) break;
    }
    if (boundaries.back() != reach.results())
      return fail(Code::kBadArgument, "the lengths of the result do not add up to its {} items",
                  reach.results());
  }
  made.cells.emplace(reach, std::move(starts), std::move(boundaries));
  return made;
}

Result<Stencil> Stencil::make(const Layout& layout, std::span<const Window> windows,
                              std::span<const std::vector<std::int64_t>> lengths) {
  const std::size_t dims = layout.dims();
  if (dims == 0 || windows.empty() || windows.size() % dims != 0)
    return fail(Code::kBadArgument, "there are {} windows for {} dims; give one for each dim of each layer",
                windows.size(), dims);
  if (!lengths.empty() && lengths.size() != dims)
    return fail(Code::kBadArgument, "lengths of the result are given for {} dims of {}", lengths.size(),
                dims);
  for (std::size_t axis = 0; axis < layout.axes().size(); ++axis)
    if (layout.axes()[axis].placement.kind == Placement::Kind::kPartial)
      return fail(Code::kUnsupported, "{} is partial; reduce it first", layout.axis_text(axis));

  std::vector<Dim> made;
  std::vector<std::int64_t> shape;
  std::vector<Layout::Axis> axes(layout.axes().begin(), layout.axes().end());
  for (std::size_t d = 0; d < dims; ++d) {
    std::vector<Window> layers;
    for (std::size_t i = d; i < windows.size(); i += dims) layers.push_back(windows[i]);
    auto reach = Reach::make(layers, layout.shape()[d]);
    if (!reach) return fail(reach.error().code(), "dim {}: {}", d, reach.error().message());
    auto dim = dim_of(layout, d, *reach, lengths.empty() ? std::vector<std::int64_t>() : lengths[d]);
    if (!dim) return fail(dim.error().code(), "dim {}: {}", d, dim.error().message());
    shape.push_back(reach->results());
    if (dim->axis) {
      std::vector<std::int64_t> parts(dim->cells->cells());
      for (std::size_t c = 0; c < parts.size(); ++c) parts[c] = dim->cells->results(c).length();
      axes[*dim->axis].placement.split = Split::given(std::move(parts));
    }
    made.push_back(*std::move(dim));
  }
  MUSTER_ASSIGN_OR_RETURN(Layout results, Layout::make(shape, std::move(axes), layout.order()));
  Stencil stencil(layout, std::move(results));
  stencil.layers_ = windows.size() / dims;
  stencil.dims_ = std::move(made);
  return stencil;
}

Result<Stencil> Stencil::gradient() const {
  Stencil stencil(results_, items_);
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    Dim dim{std::nullopt, dims_[d].axis};
    if (const auto& cells = dims_[d].cells) {
      auto reach = cells->reach().gradient();
      if (!reach) return fail(reach.error().code(), "dim {}: {}", d, reach.error().message());
      dim.cells.emplace(*std::move(reach), cells->boundaries(), cells->starts());
    }
    stencil.dims_.push_back(std::move(dim));
  }
  return stencil;
}

std::vector<std::size_t> Stencil::phases(Corners corners) const {
  std::vector<std::size_t> phases;
  std::size_t phase = 0;
  for (const Dim& dim : dims_) {
    if (!dim.cells) continue;
    if (dim.cells->has_ghosts()) phases.push_back(phase);
    if (corners == Corners::kByDims) ++phase;
  }
  if (corners == Corners::kDirect && phases.size() > 1) phases.resize(1);
  return phases;
}

std::string Stencil::text() const {
  std::string text = fmt::format("{}; results {}", items_.text(), results_.text());
  for (std::size_t d = 0; d < dims_.size(); ++d)
    if (dims_[d].cells) text += fmt::format("; dim {}: {}", d, dims_[d].cells->reach().text());
  return text;
}

// ---- one rank ----------------------------------------------------------------------------------

Result<std::vector<Cell>> Stencil::cells_of(std::int64_t rank) const {
  std::vector<Cell> cells;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const Dim& dim = dims_[d];
    Cell cell{nullptr, 0, 0, {}, {}, {}, {}, {}};
    if (dim.cells) {
      cell.dim = &*dim.cells;
      if (dim.axis) cell.number = static_cast<std::size_t>(items_.coordinate(rank, *dim.axis));
      if (dim.axis) cell.stride = items_.stride(*dim.axis);
      cell.own = cell.dim->own(cell.number);
      cell.results = cell.dim->results(cell.number);
      cell.needed = cell.dim->needed(cell.number);
      cell.held = cell.dim->held(cell.number);
      cell.interior = cell.dim->interior(cell.number);
    } else {
      const auto parts = items_.intervals(rank, d);
      if (parts.size() > 1)
        return fail(Code::kUnsupported, "dim {}: a rank has several parts of it (fused); a halo needs one",
                    d);
      if (!parts.empty()) cell.own = {parts.front().offset, parts.front().offset + parts.front().length};
      cell.results = cell.needed = cell.held = cell.interior = cell.own;
    }
    cells.push_back(cell);
  }
  return cells;
}

Result<Halo> Stencil::halo(std::int64_t rank, Corners corners) const {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Cell> cells, cells_of(rank));
  const std::size_t dims = cells.size();
  Halo halo;
  halo.own.dims = halo.needed.dims = halo.held.dims = halo.results.dims = halo.interior.dims = dims;
  halo.layers.assign(layers_ - 1, halo.own);
  for (std::size_t d = 0; d < dims; ++d) {
    set(halo.own, d, cells[d].own);
    set(halo.needed, d, cells[d].needed);
    set(halo.held, d, cells[d].held);
    set(halo.results, d, cells[d].results);
    set(halo.interior, d, cells[d].interior);
    for (std::size_t layer = 1; layer < layers_; ++layer)
      set(halo.layers[layer - 1], d,
          cells[d].dim != nullptr ? cells[d].dim->reach().reads(cells[d].results, layer) : cells[d].own);
  }
  MUSTER_RETURN_IF_ERROR(check_size(halo.held));
  halo.boundaries = peeled(halo.results, halo.interior);
  MUSTER_RETURN_IF_ERROR(add_segments(rank, cells, corners, halo));
  return halo;
}

}  // namespace muster::halo
