#include "api/base/mesh/description.hpp"

#include <algorithm>

namespace muster::mesh {
namespace {

MeshDescription::Dim describe_dim(const Mesh::Dim& dim) {
  MeshDescription::Dim result{dim.name, dim.alias,   std::string(dim_kind_name(dim.kind)),
                              dim.size, dim.enabled, {}};
  for (std::size_t i = 0; i < kBasicDimCount; ++i)
    if ((dim.members >> i & 1u) != 0) result.members.emplace_back(kBasicDimNames[i]);
  return result;
}

MeshDescription::Group describe_group(const GroupList& groups, GroupId id) {
  const GroupList::Group group = groups.group(id);
  MeshDescription::Group result{id.value, std::string(group.name), {}, {}};
  for (const std::string_view name : groups.names(id)) result.names.emplace_back(name);
  for (const Rank rank : group.ranks) result.ranks.push_back(rank.value);
  return result;
}

}  // namespace

MeshDescription describe(const GroupList& groups) {
  const Mesh& mesh = groups.mesh();
  MeshDescription result;
  result.canonical = mesh.degrees().canonical();
  result.data_parallel = data_parallel_name(mesh.degrees().data_parallel());
  result.world = mesh.world();
  for (const Mesh::DimId id : mesh.canonical_order()) result.dims.push_back(describe_dim(mesh.dim(id)));
  for (std::uint32_t i = 0; i < groups.size(); ++i)
    result.groups.push_back(describe_group(groups, GroupId(i)));
  result.groups_per_rank_min = static_cast<std::uint32_t>(groups.count_of(Rank(0)));
  for (std::uint32_t rank = 0; rank < mesh.world(); ++rank) {
    const auto count = static_cast<std::uint32_t>(groups.count_of(Rank(rank)));
    result.groups_per_rank_min = std::min(result.groups_per_rank_min, count);
    result.groups_per_rank_max = std::max(result.groups_per_rank_max, count);
  }
  result.hash = groups.hash().hex();
  return result;
}

}  // namespace muster::mesh
