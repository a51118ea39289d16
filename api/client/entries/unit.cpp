// Units of the C API.
#include "api/base/dtype.hpp"
#include "api/client/error.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/session/shown_units.hpp"
#include "api/client/units/units.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <muster/units.h>

using muster::Code;
using muster::failure;
using muster::Status;
using Figure = muster::client::GradientTotal::Figure;
using muster::client::check_session;
using muster::client::guarded;
using muster::client::status_of;
using AfterForward = muster::shard::UnitSchedule::AfterForward;
using BackwardEnd = muster::shard::UnitSchedule::BackwardEnd;
using Pass = muster::shard::UnitSchedule::Pass;

namespace {

void show(muster_units& units) {
  const muster::shm::UnitFigures figures = units.figures();
  muster::client::show_units(units.session(), &units, &figures);
}

// Runs `body` if the set's session is usable.
template<class F>
muster_status_t with_units(muster_units* units, F&& body) noexcept {
  return guarded([&]() -> Status {
    if (units == nullptr) return failure(Code::kBadArgument, "units must not be NULL");
    MUSTER_RETURN_IF_ERROR(check_session(units->session()));
    return body();
  });
}

// Runs `body` for a unit of the set.
template<class F>
muster_status_t with_unit(muster_units* units, muster_unit unit, F&& body) noexcept {
  return with_units(units, [&]() -> Status {
    if (unit < units->size()) return body();
    return failure(Code::kBadArgument, "there is no unit {}; the set has {}", unit, units->size());
  });
}

// As above, in a step. If this rank alone is refused, others must not wait for it.
template<class F>
muster_status_t in_step(muster_units* units, muster_unit unit, F&& body) noexcept {
  return with_unit(units, unit, [&]() -> Status {
    if (units->schedule() == nullptr)
      return failure(Code::kState, "unit \"{}\" is used before the first muster_step_begin",
                     units->unit(unit).facts().name);
    Status done = body(*units->schedule());
    if (done.ok() && units->watch() != nullptr) done = units->watch()->take_finding();
    show(*units);
    units->break_step(done);
    return done;
  });
}

Status check_flags(const char* what, std::uint32_t flags, std::uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return failure(Code::kBadArgument, "{} has flags {}, of which some do not exist", what, flags);
}

// Names of units are sites of their collectives, which have 47 bytes at most.
Status check_name(const char* what, const char* name) {
  if (name == nullptr || *name == '\0') return failure(Code::kBadArgument, "{} has no name", what);
  const std::string_view text = name;
  if (muster::client::is_site(text)) return {};
  return failure(Code::kBadArgument,
                 "{} has a name of {} bytes; at most 47 are possible, and no control characters", what,
                 text.size());
}

Status check_between(const char* field, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
  if (value >= least && value <= most) return {};
  return failure(Code::kBadArgument, "{} is {}; {} to {} are possible", field, value, least, most);
}

Status check_options(const muster_units_options& said) {
  if (said.size != sizeof said)
    return failure(Code::kBadArgument,
                   "muster_units_options has size {}; initialise it with its _INIT macro ({})", said.size,
                   sizeof said);
  MUSTER_RETURN_IF_ERROR(check_flags("muster_units_options", said.flags,
                                     MUSTER_UNITS_ACCUMULATE | MUSTER_UNITS_KEEP_GRADIENTS |
                                         MUSTER_UNITS_SHARE_ON_NODE | MUSTER_UNITS_ALONE));
  if (said.name != nullptr) MUSTER_RETURN_IF_ERROR(check_name("the set", said.name));
  MUSTER_RETURN_IF_ERROR(check_between("prefetch", said.prefetch, 0, 16));
  return check_between("reduce_inputs", said.reduce_inputs, 1, 16);
}

Status check_dtype(const char* field, muster_dtype dtype) {
  if (dtype == 0 || dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16 || dtype == MUSTER_F64)
    return {};
  return failure(Code::kBadArgument, "{} is {}; it must be a type of floats: F32, BF16, F16 or F64", field,
                 dtype);
}

Status check_options(const muster_unit_options& said) {
  if (said.size != sizeof said)
    return failure(Code::kBadArgument,
                   "muster_unit_options has size {}; initialise it with its _INIT macro ({})", said.size,
                   sizeof said);
  MUSTER_RETURN_IF_ERROR(check_name("the unit", said.name));
  if (said.module != nullptr) MUSTER_RETURN_IF_ERROR(check_name("the module", said.module));
  MUSTER_RETURN_IF_ERROR(
      check_flags("muster_unit_options", said.flags, MUSTER_UNIT_ROOT | MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE));
  MUSTER_RETURN_IF_ERROR(check_dtype("whole_dtype", said.whole_dtype));
  MUSTER_RETURN_IF_ERROR(check_dtype("reduce_dtype", said.reduce_dtype));
  MUSTER_RETURN_IF_ERROR(check_between("parts", said.parts, 1, 64));
  if (said.parts > 1 && (said.flags & MUSTER_UNIT_ROOT) != 0)
    return failure(Code::kBadArgument, "unit \"{}\" is the root and has {} parts; a root has one", said.name,
                   said.parts);
  if (!(said.divisor >= 0) || said.divisor > 1e30)
    return failure(Code::kBadArgument, "divisor is {}; it must be positive, or 0 for the number of ranks",
                   said.divisor);
  if (said.reserved != 0) return failure(Code::kBadArgument, "reserved is {}; it must be 0", said.reserved);
  if (said.parameters == nullptr || said.parameter_count == 0)
    return failure(Code::kBadArgument, "unit \"{}\" has no parameters", said.name);
  return {};
}

Status check_part(muster_units& units, muster_unit unit, std::uint32_t part) {
  const std::uint32_t parts = units.unit(unit).facts().parts;
  if (part < parts) return {};
  return failure(Code::kBadArgument, "part is {}; unit \"{}\" has parts 0..{}", part,
                 units.unit(unit).facts().name, parts - 1);
}

muster_status_t total(muster_units* units, Figure figure, const muster_tensor* out,
                      muster_point* done) noexcept {
  return with_units(units, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"out", out}, {"done", done}}));
    MUSTER_ASSIGN_OR_RETURN(*done, units->total(figure, *out));
    return {};
  });
}

}  // namespace

extern "C" {

muster_status_t muster_units_create(muster_session* session, const muster_units_options* options,
                                    muster_units** units) {
  if (units != nullptr) *units = nullptr;
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_session(session));
    if (units == nullptr) return failure(Code::kBadArgument, "units must not be NULL");
    const muster_units_options said =
        options == nullptr ? muster_units_options MUSTER_UNITS_OPTIONS_INIT : *options;
    MUSTER_RETURN_IF_ERROR(check_options(said));
    *units = new muster_units(session, said);
    return {};
  });
}

muster_status_t muster_units_destroy(muster_units* units) {
  if (units == nullptr) return MUSTER_OK;
  return guarded([&]() -> Status {
    // With a session that is over, its memory is gone already.
    if (check_session(units->session()).ok()) {
      MUSTER_RETURN_IF_ERROR(units->release());
      muster::client::show_units(units->session(), units, nullptr);
    }
    delete units;
    return {};
  });
}

muster_status_t muster_units_query(muster_units* units, muster_units_info* info) {
  return guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"units", units}, {"info", info}}));
    if (info->size != sizeof *info)
      return failure(Code::kBadArgument,
                     "muster_units_info has size {}; initialise it with its _INIT macro ({})", info->size,
                     sizeof *info);
    *info = units->info();
    return {};
  });
}

muster_status_t muster_unit_create(muster_units* units, const muster_unit_options* options,
                                   muster_unit* unit) {
  return with_units(units, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"options", options}, {"unit", unit}}));
    MUSTER_RETURN_IF_ERROR(check_options(*options));
    MUSTER_ASSIGN_OR_RETURN(*unit, units->add(*options));
    return {};
  });
}

muster_status_t muster_unit_tensor(muster_units* units, muster_unit unit, uint32_t parameter, int32_t which,
                                   muster_tensor* tensor) {
  return with_unit(units, unit, [&]() -> Status {
    if (tensor == nullptr) return failure(Code::kBadArgument, "tensor must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(*tensor, units->unit(unit).tensor(parameter, which));
    return {};
  });
}

muster_status_t muster_unit_boxes(muster_units* units, muster_unit unit, uint32_t parameter, int32_t which,
                                  muster_box* boxes, size_t capacity, size_t* count) {
  return with_unit(units, unit, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"count", count}}));
    if (boxes == nullptr && capacity > 0)
      return failure(Code::kBadArgument, "boxes is NULL, but capacity is {}", capacity);
    MUSTER_ASSIGN_OR_RETURN(const auto pieces, units->unit(unit).boxes(parameter, which));
    *count = pieces.size();
    for (std::size_t i = 0; i < std::min(capacity, pieces.size()); ++i) {
      std::ranges::copy(pieces[i].box.offset, boxes[i].offset);
      std::ranges::copy(pieces[i].box.length, boxes[i].length);
      std::ranges::copy(pieces[i].at, boxes[i].at);
    }
    return {};
  });
}

muster_status_t muster_unit_layout(muster_units* units, muster_unit unit, uint32_t parameter,
                                   muster_layout** layout) {
  if (layout != nullptr) *layout = nullptr;
  return with_unit(units, unit, [&]() -> Status {
    if (layout == nullptr) return failure(Code::kBadArgument, "layout must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(const muster::Layout* known, units->unit(unit).layout(parameter));
    *layout = new muster_layout{*known};
    return {};
  });
}

// ---- a step ------------------------------------------------------------------------------------

muster_status_t muster_step_begin(muster_units* units, muster_point after, uint32_t flags) {
  return with_units(units, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_flags("muster_step_begin", flags, MUSTER_STEP_UNCHANGED));
    Status begun = units->begin_step(after, (flags & MUSTER_STEP_UNCHANGED) != 0);
    show(*units);
    return begun;
  });
}

muster_status_t muster_unit_forward_begin(muster_units* units, muster_unit unit, muster_point* ready) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    if (ready == nullptr) return failure(Code::kBadArgument, "ready must not be NULL");
    return schedule.begin_forward(unit, *ready);
  });
}

muster_status_t muster_unit_forward_end(muster_units* units, muster_unit unit, uint32_t part,
                                        muster_point after) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    MUSTER_RETURN_IF_ERROR(check_part(*units, unit, part));
    return schedule.end_forward(unit, part, after);
  });
}

muster_status_t muster_unit_backward_begin(muster_units* units, muster_unit unit, muster_point ready[2]) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    if (ready == nullptr) return failure(Code::kBadArgument, "ready must not be NULL");
    ready[0] = ready[1] = MUSTER_POINT_NONE;
    const std::span<muster_point, 2> both(ready, 2);
    MUSTER_RETURN_IF_ERROR(schedule.begin_backward(unit, both));
    units->unit(unit).reduction().begin_backward();
    return units->watch() == nullptr ? Status() : units->watch()->begin_backward(unit, both);
  });
}

muster_status_t muster_unit_backward_end(muster_units* units, muster_unit unit, uint32_t part,
                                         muster_point after, uint32_t flags, muster_point* reduced) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    MUSTER_RETURN_IF_ERROR(check_part(*units, unit, part));
    MUSTER_RETURN_IF_ERROR(check_flags(
        "muster_unit_backward_end", flags,
        MUSTER_BACKWARD_KEEP_GRADIENTS | MUSTER_BACKWARD_SHARDS_ONLY | MUSTER_BACKWARD_KEEP_WHOLE));
    const bool shards_only =
        (flags & MUSTER_BACKWARD_SHARDS_ONLY) != 0 && units->unit(unit).facts().replicate.ranks > 1;
    const BackwardEnd how{.reduce = (flags & MUSTER_BACKWARD_KEEP_GRADIENTS) == 0,
                          .all_reduce = !shards_only,
                          .free = (flags & MUSTER_BACKWARD_KEEP_WHOLE) == 0};
    muster_point point = MUSTER_POINT_NONE;
    MUSTER_RETURN_IF_ERROR(schedule.end_backward(unit, part, after, how, point));
    if (reduced != nullptr) *reduced = point;
    return {};
  });
}

muster_status_t muster_unit_unused(muster_units* units, muster_unit unit, uint32_t parameter) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    MUSTER_RETURN_IF_ERROR(schedule.check_backward(unit, "muster_unit_unused"));
    return units->unit(unit).set_unused(parameter);
  });
}

muster_status_t muster_step_end(muster_units* units, muster_point after, muster_point done[2]) {
  return with_units(units, [&]() -> Status {
    if (done == nullptr) return failure(Code::kBadArgument, "done must not be NULL");
    done[0] = done[1] = MUSTER_POINT_NONE;
    Status ended = units->end_step(after, done);
    show(*units);
    units->break_step(ended);
    return ended;
  });
}

muster_status_t muster_units_square_sum(muster_units* units, const muster_tensor* out, muster_point* done) {
  return total(units, Figure::kSquareSum, out, done);
}

muster_status_t muster_units_zero_count(muster_units* units, const muster_tensor* out, muster_point* done) {
  return total(units, Figure::kZeroCount, out, done);
}

muster_status_t muster_units_broadcast(muster_units* units, muster_point after, muster_point* done) {
  return with_units(units, [&]() -> Status {
    if (done == nullptr) return failure(Code::kBadArgument, "done must not be NULL");
    *done = MUSTER_POINT_NONE;
    auto point = units->broadcast(after);
    show(*units);
    if (!point) return std::move(point).error();
    *done = *point;
    return {};
  });
}

muster_status_t muster_step_abandon(muster_units* units) {
  return with_units(units, [&]() -> Status { return units->abandon(); });
}

// ---- beyond the usual --------------------------------------------------------------------------

muster_status_t muster_unit_changed(muster_units* units, muster_unit unit, muster_point after) {
  return with_unit(units, unit, [&]() -> Status {
    if (units->schedule() == nullptr || units->schedule()->in_step())
      return failure(Code::kState, "shards of unit \"{}\" change between two steps, and not in one",
                     units->unit(unit).facts().name);
    units->shards_change(unit, after);
    return {};
  });
}

muster_status_t muster_unit_unshard(muster_units* units, muster_unit unit, muster_point* ready) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    if (ready == nullptr) return failure(Code::kBadArgument, "ready must not be NULL");
    return schedule.unshard(unit, *ready);
  });
}

muster_status_t muster_unit_reshard(muster_units* units, muster_unit unit, muster_point after) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    return schedule.reshard(unit, after);
  });
}

muster_status_t muster_unit_prefetch(muster_units* units, muster_unit unit, int32_t backward,
                                     const muster_unit* next, size_t count) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    if (next == nullptr && count > 0)
      return failure(Code::kBadArgument, "next is NULL, but has {} entries", count);
    if (count > units->size())
      return failure(Code::kBadArgument, "count is {}, but the set has {} units", count, units->size());
    for (std::size_t i = 0; i < count; ++i)
      if (next[i] >= units->size())
        return failure(Code::kBadArgument, "next[{}] is {}, but the set has {} units", i, next[i],
                       units->size());
    std::vector<std::size_t> list(next, next + count);
    schedule.set_prefetch(unit, backward != 0 ? Pass::kBackward : Pass::kForward, std::move(list));
    return {};
  });
}

muster_status_t muster_unit_set_reshard(muster_units* units, muster_unit unit, int32_t after_forward) {
  return in_step(units, unit, [&](muster::shard::UnitSchedule& schedule) -> Status {
    if (after_forward != MUSTER_RESHARD_ALWAYS && after_forward != MUSTER_RESHARD_NEVER)
      return failure(Code::kBadArgument,
                     "after_forward is {}; it may become MUSTER_RESHARD_ALWAYS or MUSTER_RESHARD_NEVER",
                     after_forward);
    schedule.set_after_forward(
        unit, after_forward == MUSTER_RESHARD_ALWAYS ? AfterForward::kFree : AfterForward::kKeep);
    return {};
  });
}
}
