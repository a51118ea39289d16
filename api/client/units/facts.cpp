#include "api/client/units/facts.hpp"

#include "api/base/collective/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/client/groups.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/set/resources.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace muster::client {
namespace {

using AfterForward = shard::UnitSchedule::AfterForward;
using shard::ShardedParameter;

bool is_float(muster_dtype dtype) {
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16 || dtype == MUSTER_F64;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 32;
}

bool is_scalable(muster_dtype dtype) {  // by muster_axpby
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16;
}

std::uint64_t aligned(std::uint64_t at, std::uint64_t to) {
  return (at + to - 1) / to * to;
}

// The elements of the largest tensor among all ranks, before the unit's axis cuts it.
std::uint64_t largest_whole(const ShardedParameter& places) {
  std::int64_t largest = places.whole_elements();
  for (std::int64_t rank = 0; places.has_other_shards() && rank < places.whole().ranks(); ++rank)
    largest = std::max(largest, places.whole().local_elements(rank));
  return static_cast<std::uint64_t>(largest);
}

void append(std::vector<muster_piece>& pieces, std::uint64_t offset, std::uint64_t count) {
  if (count == 0) return;
  if (!pieces.empty() && pieces.back().offset + pieces.back().count == offset)
    pieces.back().count += count;
  else
    pieces.push_back({offset, count});
}

Result<UnitFacts::Dim> dim_of(muster_session* session, const char* name) {
  UnitFacts::Dim dim;
  if (name == nullptr) return dim;
  dim.name = name;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session, name, &dim.coordinate, &dim.ranks)));
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session, name, &dim.group)));
  return dim;
}

// This rank's index in a layout: the row-major index of its coordinates along the axes.
Result<std::int64_t> rank_in(muster_session* session, const Layout& layout) {
  std::int64_t rank = 0;
  for (std::size_t i = 0; i < layout.axes().size(); ++i) {
    const Layout::Axis& axis = layout.axes()[i];
    std::int32_t coordinate = 0;
    std::int32_t ranks = 0;
    if (axis.name.empty())
      return fail(Code::kBadArgument, "{} of its layout has no name; name the dim of the mesh",
                  layout.axis_text(i));
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session, axis.name.c_str(), &coordinate, &ranks)));
    if (ranks != axis.ranks)
      return fail(Code::kBadArgument, "{} of its layout has {} ranks, but the mesh has {} there",
                  layout.axis_text(i), axis.ranks, ranks);
    rank = rank * axis.ranks + coordinate;
  }
  return rank;
}

// Where the shards lie, if the layout fits the unit.
Result<ShardedParameter> places_of(muster_session* session, const Layout& layout,
                                   const UnitFacts::Dim& shard) {
  for (const Layout::Axis& axis : layout.axes())
    if (axis.placement.kind == Placement::Kind::kPartial)
      return fail(Code::kBadArgument, "it is partial along \"{}\"; parameters are sharded or replicated",
                  axis.name);
  // Refused here and below on any number of ranks: a unit that works on one rank must not fail on two.
  if (layout.dims() == 0 && !shard.name.empty())
    return fail(
        Code::kBadArgument,
        "it has no dims, and cannot be sharded over \"{}\" as its unit is; give it the shape [1], or put "
        "it into a unit without shard",
        shard.name);
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t rank, rank_in(session, layout));
  for (std::size_t i = 0; i < layout.axes().size(); ++i)
    if (!shard.name.empty() && layout.axes()[i].name == shard.name)
      return ShardedParameter::make(layout, i, rank);
  if (shard.name.empty()) return ShardedParameter::make_whole(layout, rank);
  return fail(Code::kBadArgument,
              "its layout has no axis \"{}\", over which its unit is sharded; add one, or put it into a unit "
              "without shard",
              shard.name);
}

Status check_parameter(const muster_parameter& said) {
  if (said.layout == nullptr) return failure(Code::kBadArgument, "it has no layout");
  if (dtype_bytes(said.dtype) == 0)
    return failure(Code::kBadArgument, "it has dtype {}, which does not exist", said.dtype);
  if ((said.flags & ~std::uint32_t{MUSTER_PARAMETER_FROZEN | MUSTER_PARAMETER_SUMMED_OVER_TP |
                                   MUSTER_PARAMETER_LOCAL}) != 0)
    return failure(Code::kBadArgument, "it has flags {}, of which some do not exist", said.flags);
  if (said.flags == (MUSTER_PARAMETER_FROZEN | MUSTER_PARAMETER_SUMMED_OVER_TP))
    return failure(Code::kBadArgument, "it is frozen, and has no gradient to sum over tp");
  if ((said.flags & MUSTER_PARAMETER_FROZEN) == 0 && !is_float(said.dtype))
    return failure(Code::kBadArgument,
                   "it has dtype {}, which has no gradients; give it MUSTER_PARAMETER_FROZEN",
                   dtype_name(said.dtype));
  return {};
}

Status take_parameters(muster_session* session, const muster_unit_options& options, UnitFacts& unit) {
  for (std::uint32_t i = 0; i < options.parameter_count; ++i) {
    const muster_parameter& said = options.parameters[i];
    if (said.name == nullptr || *said.name == '\0')
      return failure(Code::kBadArgument, "parameters[{}] of unit \"{}\" has no name", i, unit.name);
    const auto refused = [&](const Status& why) {
      return failure(why.code(), "parameter \"{}\" of unit \"{}\": {}", said.name, unit.name, why.message());
    };
    if (std::ranges::any_of(std::string_view(said.name), is_control))
      return failure(Code::kBadArgument, "the name of parameters[{}] of unit \"{}\" has control characters",
                     i, unit.name);
    if (unit.has(said.name)) return refused(failure(Code::kBadArgument, "another one has this name"));
    if (const Status checked = check_parameter(said); !checked.ok()) return refused(checked);
    const bool summed = (said.flags & MUSTER_PARAMETER_SUMMED_OVER_TP) != 0;
    if (summed && unit.tensor.name.empty())
      return refused(
          failure(Code::kBadArgument, "its gradient is summed over tp, but its unit has no `tensor`"));
    auto places = places_of(session, said.layout->layout, unit.shard);
    if (!places) return refused(places.error());
    const bool casts = options.whole_dtype != 0 && is_float(said.dtype);
    unit.parameters.push_back({.name = said.name,
                               .places = *std::move(places),
                               .dtype = said.dtype,
                               .whole_dtype = casts ? options.whole_dtype : said.dtype,
                               .trains = (said.flags & MUSTER_PARAMETER_FROZEN) == 0,
                               .summed_over_tp = summed,
                               .local = (said.flags & MUSTER_PARAMETER_LOCAL) != 0});
  }
  return {};
}

// Gives each parameter its place in the shards, their copy and the whole unit.
void lay_out(UnitFacts& unit) {
  unit.order.resize(unit.parameters.size());
  std::iota(unit.order.begin(), unit.order.end(), std::size_t{0});
  std::ranges::stable_sort(unit.order, {}, [&](std::size_t i) {
    const UnitFacts::Parameter& p = unit.parameters[i];
    return std::tuple(-static_cast<std::int64_t>(dtype_bytes(p.whole_dtype)),
                      -static_cast<std::int64_t>(dtype_bytes(p.dtype)), p.whole_dtype, p.dtype, !p.trains);
  });
  for (const std::size_t i : unit.order) {
    UnitFacts::Parameter& p = unit.parameters[i];
    const auto elements = static_cast<std::uint64_t>(p.places.shard_elements());
    unit.shards_bytes = aligned(unit.shards_bytes, dtype_bytes(p.dtype));
    p.shard_at = unit.shards_bytes;
    p.copy_at = unit.copy_bytes;
    p.whole_at = unit.whole_bytes;
    unit.shards_bytes += elements * dtype_bytes(p.dtype);
    unit.copy_bytes += elements * dtype_bytes(p.whole_dtype);
    unit.whole_bytes += static_cast<std::uint64_t>(p.places.whole_elements()) * dtype_bytes(p.whole_dtype);
    unit.place_bytes += largest_whole(p.places) * dtype_bytes(p.whole_dtype);
    unit.copies = unit.copies || p.whole_dtype != p.dtype;
    unit.element = unit.element == 0 || unit.element == p.whole_dtype ? p.whole_dtype : MUSTER_U8;
    if (p.trains) unit.trainable.push_back(i);
  }
}

Status take_gradients(const muster_unit_options& options, bool accumulates, UnitFacts& unit) {
  for (const std::size_t i : unit.trainable) {
    UnitFacts::Parameter& p = unit.parameters[i];
    const UnitFacts::Parameter& first = unit.parameters[unit.trainable.front()];
    if (p.dtype != first.dtype)
      return failure(Code::kBadArgument,
                     "unit \"{}\": trainable parameters have one dtype, but \"{}\" has {} and \"{}\" has {}",
                     unit.name, first.name, dtype_name(first.dtype), p.name, dtype_name(p.dtype));
    p.gradient_at = unit.gradient_elements;
    p.whole_gradient_at = unit.whole_gradient_elements;
    unit.gradient_elements += static_cast<std::uint64_t>(p.places.shard_elements());
    unit.whole_gradient_elements += static_cast<std::uint64_t>(p.places.whole_elements());
    unit.gradient_place_elements += largest_whole(p.places);
    unit.dtype = p.dtype;
  }
  unit.reduce_dtype = options.reduce_dtype == 0 ? unit.dtype : options.reduce_dtype;
  if (unit.trainable.empty()) return {};
  unit.division =
      shard::gradient_division(unit.reduce_dtype, unit.shard.ranks, unit.replicate.ranks, unit.divisor);
  unit.keeps_sums = accumulates || unit.reduce_dtype != unit.dtype || unit.division.after != 1;
  if (unit.keeps_sums && !(is_scalable(unit.dtype) && is_scalable(unit.reduce_dtype)))
    return failure(
        Code::kUnsupported,
        "unit \"{}\": kernels that scale, add or convert gradients take f32, bf16 and f16, and its "
        "gradients of {} need one: {}",
        unit.name, dtype_name(is_scalable(unit.dtype) ? unit.reduce_dtype : unit.dtype),
        accumulates ? "the set has MUSTER_UNITS_ACCUMULATE; make it without"
        : unit.reduce_dtype != unit.dtype
            ? fmt::format("reduce_dtype is {}; leave it out", dtype_name(unit.reduce_dtype))
            : fmt::format("one rank has the unit, so a kernel applies the divisor {}; divide the loss",
                          unit.divisor));
  return {};
}

AfterForward after_forward_of(const UnitFacts& unit) {
  std::int32_t said = unit.after_forward;
  if (said == MUSTER_RESHARD_DEFAULT) said = unit.root ? MUSTER_RESHARD_NEVER : MUSTER_RESHARD_ALWAYS;
  if (said == MUSTER_RESHARD_NEVER || said == 1) return AfterForward::kKeep;
  if (said == MUSTER_RESHARD_ALWAYS || said == unit.shard.ranks) return AfterForward::kFree;
  return AfterForward::kSlice;
}

Status take_after_forward(std::int32_t said, UnitFacts& unit) {
  unit.after_forward = said;
  if (said < MUSTER_RESHARD_NEVER || said > unit.shard.ranks || (said > 0 && unit.shard.ranks % said != 0))
    return failure(
        Code::kBadArgument,
        "unit \"{}\": after_forward is {}; possible are MUSTER_RESHARD_*, and a number that divides the {} "
        "ranks over which it is sharded",
        unit.name, said, unit.shard.ranks);
  if (after_forward_of(unit) != AfterForward::kSlice) return {};
  for (const UnitFacts::Parameter& p : unit.parameters)
    if (p.places.has_other_shards())
      return failure(
          Code::kUnsupported,
          "unit \"{}\": after_forward is {}, but another axis shards \"{}\" too (tensor parallelism); "
          "use MUSTER_RESHARD_ALWAYS or _NEVER",
          unit.name, said, p.name);
  unit.slice_ranks = said;
  for (const std::vector<muster_piece>& slice : unit.slice_pieces()) {
    std::uint64_t elements = 0;
    for (const muster_piece& piece : slice) elements += piece.count;
    unit.slice_bytes = std::max(unit.slice_bytes, elements * dtype_bytes(unit.element));
  }
  return {};
}

// Checks a unit of a set that is this rank's alone.
Status check_alone(const UnitFacts& unit) {
  for (const UnitFacts::Dim* dim : {&unit.shard, &unit.replicate, &unit.tensor})
    if (!dim->name.empty())
      return failure(
          Code::kBadArgument,
          "unit \"{}\" names the dim \"{}\", but its set is this rank's alone (MUSTER_UNITS_ALONE)",
          unit.name, dim->name);
  for (const UnitFacts::Parameter& p : unit.parameters)
    if (!p.places.layout().axes().empty())
      return failure(Code::kBadArgument,
                     "parameter \"{}\" of unit \"{}\": its layout has axes, but its set is this rank's alone "
                     "(MUSTER_UNITS_ALONE)",
                     p.name, unit.name);
  return {};
}

std::size_t count_of(const UnitFacts::Pieces& pieces) {
  std::size_t count = 0;
  for (const std::vector<muster_piece>& block : pieces) count += block.size();
  return count;
}

// Else the first step could not plan its gather or its reduction.
Status check_pieces(const UnitFacts& unit) {
  if (unit.shard.ranks == 1) return {};
  std::size_t count = count_of(unit.whole_pieces());
  if (!unit.trainable.empty())
    count = std::max(count, count_of(unit.gradient_pieces({0, unit.trainable.size()})));
  if (count <= kPiecesMax) return {};
  return failure(Code::kNoResource,
                 "the shards of unit \"{}\" lie in {} pieces, and one operation has at most {}: make it "
                 "several units of "
                 "one module, or shard dim 0",
                 unit.name, count, kPiecesMax);
}

// Every rank gets the same answer, because it depends on the shards of all ranks.
bool can_share(const UnitFacts& unit) {
  if (unit.copies || unit.shard.ranks == 1 || unit.slice_ranks != 0) return false;
  for (const UnitFacts::Parameter& p : unit.parameters)
    for (std::int64_t rank = 0; rank < p.places.layout().ranks(); ++rank)
      if (p.places.layout().pieces(rank).size() > 1 || p.places.whole().pieces(rank).size() > 1) return false;
  return true;
}

}  // namespace

Result<UnitFacts> UnitFacts::make(muster_session* session, const muster_unit_options& options,
                                  std::uint32_t set_flags) {
  UnitFacts unit;
  unit.name = options.name;
  unit.module = options.module == nullptr ? options.name : options.module;
  unit.root = (options.flags & MUSTER_UNIT_ROOT) != 0;
  unit.whole_in_backward = (options.flags & MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE) == 0;
  unit.parts = options.parts;
  unit.divisor = options.divisor;
  MUSTER_ASSIGN_OR_RETURN(unit.shard, dim_of(session, options.shard));
  MUSTER_ASSIGN_OR_RETURN(unit.replicate, dim_of(session, options.replicate));
  MUSTER_ASSIGN_OR_RETURN(unit.tensor, dim_of(session, options.tensor));
  MUSTER_RETURN_IF_ERROR(take_parameters(session, options, unit));
  lay_out(unit);
  MUSTER_RETURN_IF_ERROR(take_gradients(options, (set_flags & MUSTER_UNITS_ACCUMULATE) != 0, unit));
  MUSTER_RETURN_IF_ERROR(take_after_forward(options.after_forward, unit));
  MUSTER_RETURN_IF_ERROR(check_pieces(unit));
  if ((set_flags & MUSTER_UNITS_ALONE) != 0) MUSTER_RETURN_IF_ERROR(check_alone(unit));
  if ((set_flags & MUSTER_UNITS_SHARE_ON_NODE) != 0 && can_share(unit)) {
    MUSTER_ASSIGN_OR_RETURN(const bool spans, spans_nodes(session, unit.shard.group));
    unit.shares = !spans;
  }
  return unit;
}

bool UnitFacts::has(std::string_view parameter) const {
  return std::ranges::find(parameters, parameter, &Parameter::name) != parameters.end();
}

shard::UnitSchedule::Facts UnitFacts::scheduled() const {
  shard::UnitSchedule::Facts unit;
  unit.name = name;
  unit.bytes = shard.ranks > 1 && !shares ? place_bytes : 0;
  unit.slice_bytes = slice_bytes;
  // Without shards and sums, a gradient needs no place: the whole gradient is the gradient shard.
  if (shard.ranks > 1 || keeps_sums)
    unit.gradient_bytes = gradient_place_elements * dtype_bytes(reduce_dtype);
  unit.parts = parts;
  unit.after_forward = after_forward_of(*this);
  unit.root = root;
  unit.whole_in_backward = whole_in_backward;
  unit.trains = !trainable.empty();
  return unit;
}

std::string UnitFacts::description() const {
  const auto dtype_text = [](muster_dtype each) {
    return each == 0 ? "none" : std::string(dtype_name(each));
  };
  std::string text = fmt::format(
      "unit \"{}\": module \"{}\", shard \"{}\" ({}), replicate \"{}\" ({}), tensor \"{}\" ({}), reduced in "
      "{}, "
      "after_forward {}, parts {}, divisor {}, root {}, whole in backward {}\n",
      name, module, shard.name, shard.ranks, replicate.name, replicate.ranks, tensor.name, tensor.ranks,
      dtype_text(reduce_dtype), after_forward, parts, divisor, root, whole_in_backward);
  for (const Parameter& p : parameters) {
    text += fmt::format("parameter \"{}\" of unit \"{}\": {}{}{} as {}, {}\n", p.name, name,
                        p.local ? "local, " : "",
                        p.summed_over_tp ? "summed over tp, "
                        : p.trains       ? ""
                                         : "frozen ",
                        dtype_text(p.dtype), dtype_text(p.whole_dtype), p.places.layout().text());
  }
  return text;
}

// ---- pieces ------------------------------------------------------------------------------------

UnitFacts::Pieces UnitFacts::whole_pieces() const {
  Pieces pieces(static_cast<std::size_t>(shard.ranks));
  for (const std::size_t i : order) {
    const Parameter& p = parameters[i];
    const std::uint64_t bytes = dtype_bytes(p.whole_dtype);
    const std::uint64_t unit = dtype_bytes(element);
    for (std::size_t member = 0; member < p.places.runs().size(); ++member)
      for (const shard::ShardedParameter::Run& run : p.places.runs()[member])
        append(pieces[member], (p.whole_at + static_cast<std::uint64_t>(run.offset) * bytes) / unit,
               static_cast<std::uint64_t>(run.count) * bytes / unit);
  }
  return pieces;
}

// A slice is the shards of several consecutive members.
UnitFacts::Pieces UnitFacts::slice_pieces() const {
  const Pieces shards = whole_pieces();
  Pieces slices(static_cast<std::size_t>(slice_ranks));
  const std::size_t each = shards.size() / slices.size();
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const muster_piece& piece : shards[i]) append(slices[i / each], piece.offset, piece.count);
  return slices;
}

UnitFacts::Pieces UnitFacts::gradient_pieces(Segment segment) const {
  const std::uint64_t first = parameters[trainable[segment.first]].whole_gradient_at;
  Pieces pieces(static_cast<std::size_t>(shard.ranks));
  for (std::size_t k = segment.first; k < segment.last; ++k) {
    const Parameter& p = parameters[trainable[k]];
    for (std::size_t member = 0; member < p.places.runs().size(); ++member)
      for (const shard::ShardedParameter::Run& run : p.places.runs()[member])
        append(pieces[member], p.whole_gradient_at - first + static_cast<std::uint64_t>(run.offset),
               static_cast<std::uint64_t>(run.count));
  }
  return pieces;
}

std::vector<muster_piece> UnitFacts::shard_pieces(const Parameter& parameter) const {
  const std::uint64_t bytes = dtype_bytes(parameter.dtype);
  std::vector<muster_piece> pieces;
  if (!shares) {
    append(pieces, parameter.shard_at, static_cast<std::uint64_t>(parameter.places.shard_elements()) * bytes);
    return pieces;
  }
  for (const shard::ShardedParameter::Run& run :
       parameter.places.runs()[static_cast<std::size_t>(shard.coordinate)])
    append(pieces, parameter.whole_at + static_cast<std::uint64_t>(run.offset) * bytes,
           static_cast<std::uint64_t>(run.count) * bytes);
  return pieces;
}

std::uint64_t UnitFacts::elements(Segment segment) const {
  std::uint64_t count = 0;
  for (std::size_t k = segment.first; k < segment.last; ++k)
    count += static_cast<std::uint64_t>(parameters[trainable[k]].places.shard_elements());
  return count;
}

Blocks::Blocks(const UnitFacts::Pieces& pieces) {
  for (const std::vector<muster_piece>& block : pieces) {
    counts_.push_back(static_cast<std::uint32_t>(block.size()));
    pieces_.insert(pieces_.end(), block.begin(), block.end());
  }
  if (pieces_.empty()) {  // one piece of nothing, for a list may not be empty
    pieces_.push_back({0, 0});
    counts_.front() = 1;
  }
}

}  // namespace muster::client
