#include "api/client/units/unit.hpp"

#include "api/base/dtype.hpp"
#include "api/client/units/mesh_dims.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace muster::client {
namespace {

muster_tensor view_of(muster_range start, std::uint64_t offset_bytes, muster_dtype dtype, const Index& shape,
                      std::size_t dims) {
  muster_tensor view{};
  view.buffer = start.buffer;
  view.offset_bytes = start.offset_bytes + offset_bytes;
  view.dtype = dtype;
  view.dims = static_cast<std::int32_t>(dims);
  std::int64_t stride = 1;
  for (std::size_t dim = dims; dim-- > 0;) {
    view.size[dim] = shape[dim];
    view.stride[dim] = stride;
    stride *= std::max<std::int64_t>(shape[dim], 1);  // as muster_view
  }
  return view;
}

bool is_whole(std::int32_t which) {
  return which == MUSTER_UNIT_WHOLE || which == MUSTER_UNIT_WHOLE_GRADIENT;
}

bool is_gradient(std::int32_t which) {
  return which == MUSTER_UNIT_GRADIENT_SHARD || which == MUSTER_UNIT_WHOLE_GRADIENT;
}

}  // namespace

Result<std::unique_ptr<Unit>> Unit::make(muster_session* session, const muster_unit_options& options,
                                         std::uint32_t set_flags, const std::string& set_name,
                                         std::uint32_t number) {
  MUSTER_ASSIGN_OR_RETURN(UnitFacts facts, UnitFacts::make(session, options, set_flags));
  for (const UnitFacts::Parameter& p : facts.parameters)
    MUSTER_RETURN_IF_ERROR(check_reduced(session, facts, p));
  facts.tag = number + 1;
  std::unique_ptr<Unit> unit(new Unit(session, std::move(facts)));
  if (Status allocated = unit->allocate(fmt::format("{}/{}", set_name, number)); !allocated.ok()) {
    (void)unit->release();
    return fail(std::move(allocated));
  }
  return unit;
}

Status Unit::allocate(const std::string& shared_name) {
  // Ranks that have another part of the unit by tensor parallelism are another group, so names do not meet.
  auto shards = facts_.shares ? memory_.shared_buffer(facts_.whole_bytes, facts_.shard.group, shared_name)
                              : memory_.buffer(facts_.shards_bytes);
  const bool of_device = !shards && facts_.shares && shards.error().code() == Code::kUnsupported;
  if (of_device) {  // which ranks cannot share
    facts_.shares = false;
    shards = memory_.buffer(facts_.shards_bytes);
  }
  if (!shards) return std::move(shards).error();
  shards_ = *shards;
  MUSTER_RETURN_IF_ERROR(all_gather_.allocate(shards_));
  return reduction_.allocate();
}

Status Unit::prepare(const Places& places) {
  MUSTER_RETURN_IF_ERROR(all_gather_.prepare(places.whole, places.slice, places.slice_group));
  reduction_.prepare(places.gradients);
  prepared_ = true;
  return {};
}

Status Unit::withdraw() {
  prepared_ = false;
  MUSTER_RETURN_IF_ERROR(all_gather_.withdraw());
  return reduction_.withdraw();
}

Status Unit::release() {
  MUSTER_RETURN_IF_ERROR(all_gather_.release());
  MUSTER_RETURN_IF_ERROR(reduction_.release());
  return memory_.release();
}

Status Unit::check_view(std::uint32_t parameter, std::int32_t which) const {
  if (parameter >= facts_.parameters.size())
    return failure(Code::kBadArgument, "unit \"{}\" has {} parameters, and no number {}", facts_.name,
                   facts_.parameters.size(), parameter);
  if (which < MUSTER_UNIT_SHARD || which > MUSTER_UNIT_WHOLE_GRADIENT)
    return failure(Code::kBadArgument, "which is {}, which is none of MUSTER_UNIT_SHARD..WHOLE_GRADIENT",
                   which);
  if (is_gradient(which) && !facts_.parameters[parameter].trains)
    return failure(Code::kBadArgument, "parameter \"{}\" of unit \"{}\" is frozen and has no gradient",
                   facts_.parameters[parameter].name, facts_.name);
  if (is_whole(which) && !prepared_)
    return failure(Code::kState,
                   "unit \"{}\" has no place yet; whole parameters and gradients exist from the first "
                   "muster_step_begin on",
                   facts_.name);
  return {};
}

muster_tensor Unit::shard_view(const UnitFacts::Parameter& p) const {
  const std::size_t dims = p.places.layout().dims();
  if (!facts_.shares) return view_of({shards_, 0}, p.shard_at, p.dtype, p.places.shard_shape(), dims);
  muster_tensor view = view_of({shards_, 0}, p.whole_at, p.dtype, p.places.whole_shape(), dims);
  const Index shape = p.places.shard_shape();
  std::ranges::copy(std::span(shape).first(dims), view.size);
  const auto& own = p.places.runs()[static_cast<std::size_t>(facts_.shard.coordinate)];
  if (!own.empty())
    view.offset_bytes += static_cast<std::uint64_t>(own.front().offset) * dtype_bytes(p.dtype);
  return view;
}

Result<muster_tensor> Unit::tensor(std::uint32_t parameter, std::int32_t which) const {
  MUSTER_RETURN_IF_ERROR(check_view(parameter, which));
  const UnitFacts::Parameter& p = facts_.parameters[parameter];
  const std::size_t dims = p.places.layout().dims();
  switch (which) {
    case MUSTER_UNIT_SHARD:
      return shard_view(p);
    case MUSTER_UNIT_GRADIENT_SHARD:
      return view_of({reduction_.gradients(), 0}, p.gradient_at * dtype_bytes(p.dtype), p.dtype,
                     p.places.shard_shape(), dims);
    case MUSTER_UNIT_WHOLE:
      return view_of(all_gather_.whole(), p.whole_at, p.whole_dtype, p.places.whole_shape(), dims);
    default:
      return view_of(reduction_.whole(), p.whole_gradient_at * dtype_bytes(facts_.reduce_dtype),
                     facts_.reduce_dtype, p.places.whole_shape(), dims);
  }
}

Result<std::vector<Layout::Piece>> Unit::boxes(std::uint32_t parameter, std::int32_t which) const {
  MUSTER_RETURN_IF_ERROR(check_view(parameter, which == MUSTER_UNIT_WHOLE ? MUSTER_UNIT_SHARD : which));
  if (is_gradient(which))
    return fail(Code::kBadArgument, "which is {}; gradients have the blocks of MUSTER_UNIT_SHARD and _WHOLE",
                which);
  const shard::ShardedParameter& places = facts_.parameters[parameter].places;
  return (which == MUSTER_UNIT_SHARD ? places.layout() : places.whole()).pieces(places.rank());
}

Result<const Layout*> Unit::layout(std::uint32_t parameter) const {
  MUSTER_RETURN_IF_ERROR(check_view(parameter, MUSTER_UNIT_SHARD));
  return &facts_.parameters[parameter].places.layout();
}

Status Unit::set_unused(std::uint32_t parameter) {
  MUSTER_RETURN_IF_ERROR(check_view(parameter, MUSTER_UNIT_GRADIENT_SHARD));
  reduction_.set_unused(parameter);
  return {};
}

}  // namespace muster::client
