#include "api/client/halo/place.hpp"

#include "api/base/dtype.hpp"
#include "api/client/session/session.hpp"
#include "api/client/stencil_handle.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <muster/kernels.h>

namespace muster::client {
namespace {

using halo::Corners;
using halo::Halo;
using halo::Segment;
using halo::Stencil;

// A block of an array.
muster_tensor view_of_block(muster_tensor tensor, const Index& at, const Index& length) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  for (std::int32_t d = 0; d < tensor.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    tensor.offset_bytes += static_cast<std::uint64_t>(at[i] * tensor.stride[d] * bytes);
    tensor.size[d] = length[i];
  }
  return tensor;
}

// Faces of one phase. Those to or from one peer have tags in the order of their segments, which both ends
// know.
class FaceList {
 public:
  void add(const Segment& segment, const muster_tensor& view) {
    faces_.push_back({static_cast<std::int32_t>(segment.peer), tags_[segment.peer]++, view});
  }
  std::span<const muster_face> all() const { return faces_; }

 private:
  std::vector<muster_face> faces_;
  std::map<std::int64_t, std::uint32_t> tags_;
};

constexpr double kSpoiltGhost = std::numeric_limits<double>::quiet_NaN();

bool is_float(muster_dtype dtype) {
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16 || dtype == MUSTER_F64;
}

std::vector<muster_plan> list_of(const muster_plan* plans, std::uint32_t count) {
  return {plans, plans + count};
}

}  // namespace

// ---- facts -------------------------------------------------------------------------------------

HaloPlace::HaloPlace(muster_session* session, const HaloGroup& group, const muster_halo_options& options)
    : group_(group),
      name_(options.name),
      lane_(options.lane),
      spoils_(session->check() != nullptr),
      corners_(options.corners == MUSTER_CORNERS_DIRECT ? Corners::kDirect : Corners::kByDims),
      gradients_(options.gradients),
      stencil_(options.stencil->stencil),
      held_gradients_(options.held_gradients),
      forward_{list_of(options.forward.interior, options.forward.interior_count),
               list_of(options.forward.boundary, options.forward.boundary_count)},
      backward_{list_of(options.backward.interior, options.backward.interior_count),
                list_of(options.backward.boundary, options.backward.boundary_count)},
      plans_(session) {}

Status HaloPlace::plan_held(const Stencil& stencil, const muster_tensor& tensor, const char* field,
                            Array& array) const {
  MUSTER_ASSIGN_OR_RETURN(array.halo, stencil.halo(group_.rank, corners_));
  array.tensor = tensor;
  array.phases = stencil.phases(corners_);
  const Box& held = array.halo.held;
  const std::span<const std::int64_t> shape = std::span(held.length).first(held.dims);
  const std::span<const std::int64_t> given =
      std::span(tensor.size)
          .first(static_cast<std::size_t>(std::clamp(tensor.dims, 0, MUSTER_TENSOR_DIMS_MAX)));
  if (!std::ranges::equal(shape, given))
    return failure(Code::kBadArgument, "halo \"{}\": {} has shape {}; this rank holds {}", name_, field,
                   to_text(given), to_text(shape));
  if (dtype_bytes(tensor.dtype) == 0)
    return failure(Code::kBadArgument, "halo \"{}\": {} has dtype {}, which does not exist", name_, field,
                   tensor.dtype);
  return {};
}

Result<std::unique_ptr<HaloPlace>> HaloPlace::make(muster_session* session, const HaloGroup& group,
                                                   const muster_halo_options& options) {
  std::unique_ptr<HaloPlace> made(new HaloPlace(session, group, options));
  if (made->stencil_.layout().ranks() != group.ranks)
    return fail(Code::kBadArgument,
                "halo \"{}\": the stencil's layout has {} ranks, but the set's group has {}", made->name_,
                made->stencil_.layout().ranks(), group.ranks);
  MUSTER_RETURN_IF_ERROR(made->plan_held(made->stencil_, options.held, "held", made->held_));
  if (made->gradients_ == MUSTER_HALO_FETCH) {
    auto gradient = made->stencil_.gradient();
    if (!gradient)
      return fail(gradient.error().code(), "halo \"{}\": {}", made->name_, gradient.error().message());
    MUSTER_RETURN_IF_ERROR(
        made->plan_held(*gradient, options.held_gradients, "held_gradients", made->fetched_));
  }
  if (made->gradients_ == MUSTER_HALO_RETURN) {
    Array same;
    MUSTER_RETURN_IF_ERROR(made->plan_held(made->stencil_, options.held_gradients, "held_gradients", same));
    const muster_dtype dtype = options.held_gradients.dtype;
    if (dtype != MUSTER_F32 && dtype != MUSTER_BF16 && dtype != MUSTER_F16)
      return fail(
          Code::kBadArgument,
          "halo \"{}\": held_gradients has dtype {}; returned gradients are added in f32, bf16 or f16",
          made->name_, dtype_name(dtype));
  }
  return made;
}

std::string HaloPlace::description() const {
  return fmt::format(
      "halo \"{}\": {}; {}, {}, corners {}, gradients {}\n", name_, stencil_.text(),
      dtype_name(held_.tensor.dtype),
      gradients_ == MUSTER_HALO_FORWARD_ONLY ? "no gradients" : dtype_name(held_gradients_.dtype),
      corners_ == Corners::kDirect ? "direct" : "by dims", gradients_);
}

void HaloPlace::add_to(muster_halos_info& info) const {
  const auto bytes = [](std::int64_t elements, muster_dtype dtype) {
    return static_cast<std::uint64_t>(elements) * dtype_bytes(dtype);
  };
  info.forward_bytes_in += bytes(held_.halo.elements_in, held_.tensor.dtype);
  info.forward_bytes_out += bytes(held_.halo.elements_out, held_.tensor.dtype);
  if (gradients_ == MUSTER_HALO_RETURN) {
    info.backward_bytes_in += bytes(held_.halo.elements_out, held_gradients_.dtype);
    info.backward_bytes_out += bytes(held_.halo.elements_in, held_gradients_.dtype);
  } else if (gradients_ == MUSTER_HALO_FETCH) {
    info.backward_bytes_in += bytes(fetched_.halo.elements_in, held_gradients_.dtype);
    info.backward_bytes_out += bytes(fetched_.halo.elements_out, held_gradients_.dtype);
  }
  info.inbox_bytes += inbox_bytes_;
  info.exchanges += exchanges_;
}

// ---- plans -------------------------------------------------------------------------------------

Result<muster_plan> HaloPlace::exchange(std::span<const muster_face> sends,
                                        std::span<const muster_face> receives) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_EXCHANGE;
  c.group = group_.group;
  c.sends = sends.data();
  c.send_count = static_cast<std::uint32_t>(sends.size());
  c.receives = receives.data();
  c.receive_count = static_cast<std::uint32_t>(receives.size());
  c.site = name_.c_str();
  return plans_.plan(c);
}

Status HaloPlace::prepare_exchanges(const Array& array, std::vector<Phase>& phases) {
  for (const std::size_t phase : array.phases) {
    FaceList sends, receives;
    for (const Segment& segment : array.halo.gives)
      if (segment.phase == phase)
        sends.add(segment, view_of_block(array.tensor, segment.from, segment.length));
    for (const Segment& segment : array.halo.gets)
      if (segment.phase == phase)
        receives.add(segment, view_of_block(array.tensor, segment.at, segment.length));
    Phase made;
    MUSTER_ASSIGN_OR_RETURN(made.exchange, exchange(sends.all(), receives.all()));
    if (spoils_ && is_float(array.tensor.dtype)) {
      for (const muster_face& face : receives.all()) {
        MUSTER_ASSIGN_OR_RETURN(const muster_plan spoil, plans_.plan(muster_fill(face.view, kSpoiltGhost)));
        made.spoils.push_back(spoil);
      }
    }
    phases.push_back(std::move(made));
  }
  return {};
}

// The last phase first: what it brings home may be a ghost of an earlier one.
Status HaloPlace::prepare_return() {
  const Halo& halo = held_.halo;
  const std::uint64_t bytes = dtype_bytes(held_gradients_.dtype);
  std::uint64_t elements = 0;
  for (const Segment& segment : halo.gives)
    elements += static_cast<std::uint64_t>(segment.elements(halo.own.dims));
  muster_buffer inbox = 0;
  inbox_bytes_ = elements * bytes;
  if (elements > 0) {
    MUSTER_ASSIGN_OR_RETURN(inbox, plans_.buffer(inbox_bytes_));
  }
  for (auto phase = held_.phases.rbegin(); phase != held_.phases.rend(); ++phase) {
    Phase made;
    FaceList sends, receives;
    for (const Segment& segment : halo.gets)
      if (segment.phase == *phase)
        sends.add(segment, view_of_block(held_gradients_, segment.at, segment.length));
    for (const Segment& segment : halo.gives) {
      if (segment.phase != *phase) continue;
      const muster_tensor landing =
          muster_view(inbox, static_cast<std::uint64_t>(segment.inbox) * bytes, held_gradients_.dtype,
                      held_gradients_.dims, segment.length.data());
      receives.add(segment, landing);
      MUSTER_ASSIGN_OR_RETURN(
          const muster_plan add,
          plans_.plan(
              muster_axpby(1, landing, 1, view_of_block(held_gradients_, segment.from, segment.length))));
      made.adds.push_back(add);
    }
    MUSTER_ASSIGN_OR_RETURN(made.exchange, exchange(sends.all(), receives.all()));
    backward_phases_.push_back(std::move(made));
  }
  return {};
}

Status HaloPlace::prepare() {
  MUSTER_RETURN_IF_ERROR(prepare_exchanges(held_, forward_phases_));
  if (gradients_ == MUSTER_HALO_RETURN) return prepare_return();
  return prepare_exchanges(fetched_, backward_phases_);
}

Status HaloPlace::withdraw() {
  forward_phases_.clear();
  backward_phases_.clear();
  inbox_bytes_ = 0;
  return plans_.release();
}

// ---- starts ------------------------------------------------------------------------------------

Result<muster_point> HaloPlace::run(SetLanes& lanes, const std::vector<Phase>& phases, const Kernels& kernels,
                                    muster_point after) {
  muster_point arrived = MUSTER_POINT_NONE, begin = after;
  for (const Phase& phase : phases)
    for (const muster_plan spoil : phase.spoils) {
      MUSTER_ASSIGN_OR_RETURN(begin, lanes.start_on(spoil, lane_, {&after, 1}));
    }
  for (const Phase& phase : phases) {
    MUSTER_ASSIGN_OR_RETURN(arrived, lanes.start(phase.exchange, MUSTER_LANE_HALO, {&begin, 1}));
    ++exchanges_;
  }
  for (const muster_plan kernel : kernels.interior) {
    if (auto started = lanes.start_on(kernel, lane_, {&after, 1}); !started) return started;
  }
  const muster_point waits[] = {after, arrived};
  muster_point done = MUSTER_POINT_NONE;
  for (const muster_plan kernel : kernels.boundary) {
    MUSTER_ASSIGN_OR_RETURN(done, lanes.start_on(kernel, lane_, waits));
  }
  return kernels.boundary.empty() ? lanes.join_on(lane_, waits) : Result<muster_point>(done);
}

Result<muster_point> HaloPlace::run_return(SetLanes& lanes, muster_point after) {
  muster_point complete = after;  // the gradients of ghosts
  for (const muster_plan kernel : backward_.boundary) {
    MUSTER_ASSIGN_OR_RETURN(complete, lanes.start_on(kernel, lane_, {&after, 1}));
  }
  muster_point done = complete;
  const auto start_interior = [&]() -> Status {
    for (const muster_plan kernel : backward_.interior) {
      MUSTER_ASSIGN_OR_RETURN(done, lanes.start_on(kernel, lane_, {&after, 1}));
    }
    return {};
  };
  bool begun = false;
  for (const Phase& phase : backward_phases_) {
    MUSTER_ASSIGN_OR_RETURN(muster_point arrived,
                            lanes.start(phase.exchange, MUSTER_LANE_HALO, {&complete, 1}));
    ++exchanges_;
    if (!std::exchange(begun, true)) MUSTER_RETURN_IF_ERROR(start_interior());
    for (const muster_plan add : phase.adds) {
      MUSTER_ASSIGN_OR_RETURN(done, lanes.start_on(add, lane_, {&arrived, 1}));
    }
    if (phase.adds.empty()) {
      MUSTER_ASSIGN_OR_RETURN(done, lanes.join_on(lane_, {&arrived, 1}));
    }
    complete = done;
  }
  if (!begun) MUSTER_RETURN_IF_ERROR(start_interior());
  return done;
}

Result<muster_point> HaloPlace::forward(SetLanes& lanes, muster_point after) {
  return run(lanes, forward_phases_, forward_, after);
}

Result<muster_point> HaloPlace::backward(SetLanes& lanes, muster_point after) {
  if (gradients_ == MUSTER_HALO_RETURN) return run_return(lanes, after);
  return run(lanes, backward_phases_, backward_, after);
}

}  // namespace muster::client
