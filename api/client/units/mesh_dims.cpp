#include "api/client/units/mesh_dims.hpp"

#include "api/client/set/resources.hpp"

#include <algorithm>
#include <vector>

namespace muster::client {
namespace {

// Whether this rank meets another one along both: dims that are products may have a dim in common.
Result<bool> have_ranks_in_common(muster_session* session, muster_group one, muster_group other) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> first, ranks_of(session, one));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> second, ranks_of(session, other));
  return std::ranges::count_if(
             first, [&](std::int32_t rank) { return std::ranges::find(second, rank) != second.end(); }) > 1;
}

Status check_not_cut(muster_session* session, const UnitFacts& unit, const UnitFacts::Parameter& parameter,
                     const UnitFacts::Dim& dim, const char* how) {
  if (dim.ranks == 1) return {};
  for (const Layout::Axis& axis : parameter.places.layout().axes()) {
    if (axis.placement.kind != Placement::Kind::kShard || axis.ranks == 1) continue;
    muster_group group = MUSTER_GROUP_SELF;
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session, axis.name.c_str(), &group)));
    MUSTER_ASSIGN_OR_RETURN(const bool cuts, have_ranks_in_common(session, group, dim.group));
    if (cuts)
      return failure(
          Code::kBadArgument,
          "parameter \"{}\" of unit \"{}\": its layout shards it over \"{}\", but its gradient is "
          "{} over \"{}\", of which ranks have different parts; replicate it there, or put it into "
          "a unit of another dim",
          parameter.name, unit.name, axis.name, how, dim.name);
  }
  return {};
}

}  // namespace

Status check_reduced(muster_session* session, const UnitFacts& unit, const UnitFacts::Parameter& parameter) {
  if (!parameter.trains) return {};
  MUSTER_RETURN_IF_ERROR(check_not_cut(session, unit, parameter, unit.replicate, "reduced"));
  if (!parameter.summed_over_tp) return {};
  return check_not_cut(session, unit, parameter, unit.tensor, "summed");
}

Result<std::vector<std::string_view>> dims_that_cut(muster_session* session,
                                                    const UnitFacts::Parameter& parameter) {
  std::vector<std::string_view> dims;
  for (const Layout::Axis& axis : parameter.places.layout().axes()) {
    if (axis.placement.kind != Placement::Kind::kShard || axis.ranks == 1) continue;
    muster_group group = MUSTER_GROUP_SELF;
    const muster_status_t named = muster_mesh_group(session, axis.name.c_str(), &group);
    const bool is_of_mesh = named != MUSTER_ERR_NOT_FOUND && named != MUSTER_ERR_BAD_ARGUMENT;
    if (is_of_mesh) MUSTER_RETURN_IF_ERROR(status_of(named));
    std::int64_t ranks = is_of_mesh ? 1 : 0;  // of the dims that the axis has
    for (const char* dim : kStageDims) {
      std::int32_t size = 1;
      muster_group along = MUSTER_GROUP_SELF;
      MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session, dim, nullptr, &size)));
      if (size == 1) continue;
      MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session, dim, &along)));
      MUSTER_ASSIGN_OR_RETURN(const bool has_dim, have_ranks_in_common(session, group, along));
      if (!has_dim) continue;
      ranks *= size;
      dims.emplace_back(dim);
    }
    if (ranks != axis.ranks)
      return fail(
          Code::kUnsupported,
          "parameter \"{}\" is sharded over \"{}\", which is not made of whole dims of a stage ({}); so "
          "it is not known which ranks have the same part of it",
          parameter.name, axis.name, fmt::join(kStageDims, ", "));
  }
  return dims;
}

}  // namespace muster::client
