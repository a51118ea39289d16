// Stencils of the C API.
#include "api/client/error.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/stencil_handle.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <muster/halo.h>

using muster::Box;
using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::guarded;
using muster::halo::Corners;
using muster::halo::Halo;
using muster::halo::Segment;
using muster::halo::Stencil;
using muster::halo::Window;

namespace {

static_assert(static_cast<int>(Window::Kind::kArea) == MUSTER_WINDOW_AREA);
static_assert(static_cast<int>(Window::Kind::kTransposed) == MUSTER_WINDOW_TRANSPOSED);
static_assert(static_cast<int>(Window::Pad::kReplicate) == MUSTER_PAD_REPLICATE);

// Refuses fields that the kind does not use: they were meant for something else.
Status check_unused(const muster_window& said) {
  const bool slides = said.kind >= MUSTER_WINDOW_CONVOLUTION && said.kind <= MUSTER_WINDOW_TRANSPOSED;
  const bool has_length = said.kind == MUSTER_WINDOW_WHOLE || said.kind >= MUSTER_WINDOW_NEAREST;
  struct Field {
    const char* name;
    bool given, used;
  };
  for (const Field& field :
       {Field{"kernel", said.kernel != 1, slides}, Field{"stride", said.stride != 1, slides},
        Field{"dilation", said.dilation != 1, slides}, Field{"before", said.before != 0, slides},
        Field{"after", said.after != 0, slides}, Field{"pad", said.pad != 0, slides},
        Field{"extra", said.extra != 0, said.kind == MUSTER_WINDOW_TRANSPOSED},
        Field{"ceil", said.ceil != 0, said.kind == MUSTER_WINDOW_POOL},
        Field{"length", said.length != 0, has_length},
        Field{"scale", said.scale != 0, said.kind >= MUSTER_WINDOW_NEAREST}})
    if (field.given && !field.used)
      return failure(Code::kBadArgument,
                     "{} is given, but a window of this kind does not use it; leave it as in "
                     "MUSTER_WINDOW_INIT",
                     field.name);
  return {};
}

Result<Window> window_of(const muster_window& said) {
  if (said.kind < MUSTER_WINDOW_EACH || said.kind > MUSTER_WINDOW_AREA)
    return fail(Code::kBadArgument, "kind is {}, which is none of MUSTER_WINDOW_EACH..AREA", said.kind);
  if (said.pad < MUSTER_PAD_ZEROS || said.pad > MUSTER_PAD_REPLICATE)
    return fail(Code::kBadArgument, "pad is {}, which is none of MUSTER_PAD_ZEROS..REPLICATE", said.pad);
  if (said.ceil != 0 && said.ceil != 1)
    return fail(Code::kBadArgument, "ceil is {}; it is 0 or 1", said.ceil);
  if (said.lengths == nullptr && said.length_count != 0)
    return fail(Code::kBadArgument, "lengths is NULL, but it has {} entries", said.length_count);
  MUSTER_RETURN_IF_ERROR(check_unused(said));
  Window window;
  window.kind = static_cast<Window::Kind>(said.kind);
  window.pad = static_cast<Window::Pad>(said.pad);
  window.kernel = said.kernel;
  window.stride = said.stride;
  window.dilation = said.dilation;
  window.before = said.before;
  window.after = said.after;
  window.extra = said.extra;
  window.length = said.length;
  window.scale = said.scale;
  window.ceil = said.ceil != 0;
  return window;
}

Result<Stencil> stencil_of(const muster_stencil_options& said) {
  if (said.size != sizeof said)
    return fail(Code::kBadArgument,
                "muster_stencil_options has size {}; initialise it with its _INIT macro ({})", said.size,
                sizeof said);
  MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"layout", said.layout}, {"windows", said.windows}}));
  if (said.layers < 1 || said.layers > muster::halo::Reach::kLayersMax)
    return fail(Code::kBadArgument, "layers is {}; 1 to {} are possible", said.layers,
                muster::halo::Reach::kLayersMax);
  const std::size_t dims = said.layout->layout.dims();
  std::vector<Window> windows;
  std::vector<std::vector<std::int64_t>> lengths(dims);
  for (std::size_t i = 0; i < dims * said.layers; ++i) {
    const muster_window& one = said.windows[i];
    const bool is_last = i >= dims * (said.layers - 1);
    auto window = window_of(one);
    if (!window) return fail(window.error().code(), "windows[{}]: {}", i, window.error().message());
    if (!is_last && one.lengths != nullptr)
      return fail(Code::kBadArgument, "windows[{}]: only the last layer has lengths", i);
    windows.push_back(*window);
    if (one.lengths != nullptr) lengths[i % dims].assign(one.lengths, one.lengths + one.length_count);
  }
  return Stencil::make(said.layout->layout, windows, lengths);
}

Result<Halo> halo_of(const muster_stencil* stencil, std::int32_t rank, muster_corners corners) {
  MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"stencil", stencil}}));
  const std::int64_t ranks = stencil->stencil.layout().ranks();
  if (rank < 0 || rank >= ranks)
    return fail(Code::kBadArgument, "rank {} is not in the layout's 0..{}", rank, ranks - 1);
  if (corners != MUSTER_CORNERS_DIRECT && corners != MUSTER_CORNERS_BY_DIMS)
    return fail(Code::kBadArgument, "corners is {}, which is neither MUSTER_CORNERS_DIRECT nor BY_DIMS",
                corners);
  return stencil->stencil.halo(rank, corners == MUSTER_CORNERS_DIRECT ? Corners::kDirect : Corners::kByDims);
}

muster_halo_box box_of(const Box& box) {
  muster_halo_box out{};
  std::ranges::copy(box.offset, out.offset);
  std::ranges::copy(box.length, out.length);
  return out;
}

std::uint32_t phases_of(const Halo& halo) {
  std::size_t phases = 0;
  for (const auto* segments : {&halo.gets, &halo.gives})
    if (!segments->empty()) phases = std::max(phases, segments->back().phase + 1);
  return static_cast<std::uint32_t>(phases);
}

Status check_list(const char* name, const void* list, std::size_t capacity, const std::size_t* count) {
  MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"count", count}}));
  if (list != nullptr || capacity == 0) return {};
  return failure(Code::kBadArgument, "{} is NULL, but capacity is {}", name, capacity);
}

}  // namespace

extern "C" {

muster_status_t muster_stencil_create(const muster_stencil_options* options, muster_stencil** stencil) {
  if (stencil != nullptr) *stencil = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"options", options}, {"stencil", stencil}}));
    MUSTER_ASSIGN_OR_RETURN(Stencil made, stencil_of(*options));
    *stencil = new muster_stencil{std::move(made)};
    return {};
  });
}

muster_status_t muster_stencil_gradient(const muster_stencil* stencil, muster_stencil** gradient) {
  if (gradient != nullptr) *gradient = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"stencil", stencil}, {"gradient", gradient}}));
    MUSTER_ASSIGN_OR_RETURN(Stencil made, stencil->stencil.gradient());
    *gradient = new muster_stencil{std::move(made)};
    return {};
  });
}

muster_status_t muster_stencil_destroy(muster_stencil* stencil) {
  delete stencil;
  return MUSTER_OK;
}

muster_status_t muster_stencil_result(const muster_stencil* stencil, muster_layout** layout) {
  if (layout != nullptr) *layout = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"stencil", stencil}, {"layout", layout}}));
    *layout = new muster_layout{stencil->stencil.result()};
    return {};
  });
}

muster_status_t muster_stencil_query(const muster_stencil* stencil, int32_t rank, muster_corners corners,
                                     muster_halo_info* info) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"info", info}}));
    if (info->size != sizeof *info)
      return failure(Code::kBadArgument,
                     "muster_halo_info has size {}; initialise it with its _INIT macro ({})", info->size,
                     sizeof *info);
    MUSTER_ASSIGN_OR_RETURN(const Halo halo, halo_of(stencil, rank, corners));
    *info = MUSTER_HALO_INFO_INIT;
    info->dims = static_cast<std::int32_t>(halo.own.dims);
    info->own = box_of(halo.own);
    info->needed = box_of(halo.needed);
    info->held = box_of(halo.held);
    info->results = box_of(halo.results);
    info->interior = box_of(halo.interior);
    info->elements_in = halo.elements_in;
    info->elements_out = halo.elements_out;
    info->gets = static_cast<std::uint32_t>(halo.gets.size());
    info->gives = static_cast<std::uint32_t>(halo.gives.size());
    info->phases = phases_of(halo);
    return {};
  });
}

muster_status_t muster_stencil_boxes(const muster_stencil* stencil, int32_t rank, int32_t layer,
                                     muster_halo_box* boxes, size_t capacity, size_t* count) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_list("boxes", boxes, capacity, count));
    MUSTER_ASSIGN_OR_RETURN(const Halo halo, halo_of(stencil, rank, MUSTER_CORNERS_DIRECT));
    std::span<const Box> found = halo.boundaries;
    if (layer != -1) {
      if (layer < 0 || static_cast<std::size_t>(layer) >= halo.layers.size())
        return failure(Code::kBadArgument, "layer {} is not one of the {} between the first and the last",
                       layer, halo.layers.size());
      found = std::span(halo.layers).subspan(static_cast<std::size_t>(layer), 1);
    }
    *count = found.size();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) boxes[i] = box_of(found[i]);
    return {};
  });
}

muster_status_t muster_stencil_segments(const muster_stencil* stencil, int32_t rank, muster_corners corners,
                                        int32_t gives, muster_segment* segments, size_t capacity,
                                        size_t* count) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_list("segments", segments, capacity, count));
    MUSTER_ASSIGN_OR_RETURN(const Halo halo, halo_of(stencil, rank, corners));
    const std::vector<Segment>& found = gives != 0 ? halo.gives : halo.gets;
    *count = found.size();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      segments[i].peer = static_cast<std::int32_t>(found[i].peer);
      segments[i].phase = static_cast<std::uint32_t>(found[i].phase);
      std::ranges::copy(found[i].from, segments[i].from);
      std::ranges::copy(found[i].at, segments[i].at);
      std::ranges::copy(found[i].length, segments[i].length);
    }
    return {};
  });
}
}
