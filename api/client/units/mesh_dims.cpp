#include "api/client/units/mesh_dims.hpp"

#include "api/client/units/resources.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace muster::client {
namespace {

// A dim of the mesh that is made of others, or one of those by itself.
bool contains(std::string_view axis, std::string_view dim) {
  const bool is_dp_shard_or_cp = dim == "dp_shard" || dim == "cp";
  if (axis == "weight") return is_dp_shard_or_cp || dim == "tp";
  if (axis == "dp_shard_cp" || axis == "fsdp") return is_dp_shard_or_cp;
  return axis == dim;
}

bool is_known(std::string_view axis) {
  return std::ranges::any_of(std::array{"dp_shard", "cp", "tp"},
                             [&](const char* dim) { return contains(axis, dim); });
}

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

Result<std::vector<std::int32_t>> ranks_of(muster_session* session, muster_group group) {
  std::size_t count = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, nullptr, 0, &count)));
  std::vector<std::int32_t> ranks(count);
  MUSTER_RETURN_IF_ERROR(status_of(muster_group_ranks(session, group, ranks.data(), ranks.size(), &count)));
  return ranks;
}

Status check_reduced(muster_session* session, const UnitFacts& unit, const UnitFacts::Parameter& parameter) {
  if (!parameter.trains) return {};
  MUSTER_RETURN_IF_ERROR(check_not_cut(session, unit, parameter, unit.replicate, "reduced"));
  if (!parameter.summed_over_tp) return {};
  return check_not_cut(session, unit, parameter, unit.tensor, "summed");
}

bool is_cut_by(const UnitFacts::Parameter& parameter, std::string_view dim) {
  return std::ranges::any_of(parameter.places.layout().axes(), [&](const Layout::Axis& axis) {
    return axis.placement.kind == Placement::Kind::kShard && contains(axis.name, dim);
  });
}

Status check_dims(const UnitFacts::Parameter& parameter) {
  for (const Layout::Axis& axis : parameter.places.layout().axes())
    if (axis.placement.kind == Placement::Kind::kShard && axis.ranks > 1 && !is_known(axis.name))
      return failure(Code::kUnsupported,
                     "parameter \"{}\" is sharded over \"{}\"; its replicas are known where dp_shard, cp, tp "
                     "and what is made of them shard it",
                     parameter.name, axis.name);
  return {};
}

}  // namespace muster::client
