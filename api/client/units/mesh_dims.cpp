#include "api/client/units/mesh_dims.hpp"

#include <algorithm>
#include <array>

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

}  // namespace

bool is_cut_by(const UnitParameter& parameter, std::string_view dim) {
  return std::ranges::any_of(parameter.places.layout().axes(), [&](const MeshAxis& axis) {
    return axis.placement.kind == PlacementKind::kShard && contains(axis.name, dim);
  });
}

Status check_dims(const UnitParameter& parameter) {
  for (const MeshAxis& axis : parameter.places.layout().axes())
    if (axis.placement.kind == PlacementKind::kShard && axis.ranks > 1 && !is_known(axis.name))
      return failure(Code::kUnsupported,
                     "parameter \"{}\" is sharded over \"{}\"; its replicas are known where dp_shard, cp, tp "
                     "and what is made of them shard it",
                     parameter.name, axis.name);
  return {};
}

}  // namespace muster::client
