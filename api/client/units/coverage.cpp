#include "api/client/units/coverage.hpp"

#include "api/client/set/resources.hpp"
#include "api/client/units/mesh_dims.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::client {
namespace {

// The groups of this rank along which a unit's ranks have different parts, or reduce.
//
// Owns    their members.
// Thread  a value; any.
// Bound   one list for each dim and axis.
// Fails   as muster_group_ranks.
class Covered {
 public:
  explicit Covered(muster_session* session) : session_(session) {}

  Status add(const std::string& dim) {
    if (dim.empty()) return {};
    MUSTER_ASSIGN_OR_RETURN(std::vector<std::int32_t> ranks, ranks_along(dim.c_str()));
    groups_.push_back(std::move(ranks));
    return {};
  }
  Result<bool> has(const char* dim) const {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ranks, ranks_along(dim));
    return std::ranges::any_of(groups_, [&](const std::vector<std::int32_t>& group) {
      return std::ranges::all_of(
          ranks, [&](std::int32_t rank) { return std::ranges::find(group, rank) != group.end(); });
    });
  }

 private:
  Result<std::vector<std::int32_t>> ranks_along(const char* dim) const {
    muster_group group = MUSTER_GROUP_SELF;
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session_, dim, &group)));
    return ranks_of(session_, group);
  }

  muster_session* session_;
  std::vector<std::vector<std::int32_t>> groups_;
};

// By the unit's names, and by the axes of those parameters.
Result<Covered> covered_by(muster_session* session, const UnitFacts& unit,
                           std::span<const std::size_t> parameters) {
  Covered covered(session);
  for (const UnitFacts::Dim* dim : {&unit.shard, &unit.replicate, &unit.tensor})
    MUSTER_RETURN_IF_ERROR(covered.add(dim->name));
  for (const std::size_t i : parameters)
    for (const Layout::Axis& axis : unit.parameters[i].places.layout().axes())
      if (axis.placement.kind == Placement::Kind::kShard) MUSTER_RETURN_IF_ERROR(covered.add(axis.name));
  // Without experts efsdp has the ranks of weight, and reports would call that group by the name asked first.
  std::int32_t ep = 1;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session, "ep", nullptr, &ep)));
  if (ep == 1) return covered;
  // Together they are the ranks of dp_shard, cp and tp, factored in another way.
  MUSTER_ASSIGN_OR_RETURN(const bool experts, covered.has("ep"));
  MUSTER_ASSIGN_OR_RETURN(const bool shards, covered.has("efsdp"));
  if (experts && shards) MUSTER_RETURN_IF_ERROR(covered.add("weight"));
  return covered;
}

}  // namespace

Status check_covered(muster_session* session, const UnitFacts& unit) {
  MUSTER_ASSIGN_OR_RETURN(const Covered together, covered_by(session, unit, unit.trainable));
  for (const std::size_t i : unit.trainable) {
    if (unit.parameters[i].local) continue;
    MUSTER_ASSIGN_OR_RETURN(const Covered alone, covered_by(session, unit, std::span(&i, 1)));
    for (const char* dim : kStageDims) {
      std::int32_t ranks = 1;
      MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session, dim, nullptr, &ranks)));
      if (ranks == 1) continue;
      // Ranks along tp compute equal gradients of what lies beside a cut parameter. Others see other data.
      const bool is_tp = std::string_view(dim) == "tp";
      MUSTER_ASSIGN_OR_RETURN(const bool is_cut, (is_tp ? together : alone).has(dim));
      if (is_cut) continue;
      const std::string& name = unit.parameters[i].name;
      return failure(
          Code::kBadArgument,
          "unit \"{}\": the mesh has {} ranks along \"{}\", which {} and is not named by the unit, "
          "so replicas of \"{}\" would train apart; name it ({}), alone or in a product, or say "
          "that this is meant (MUSTER_PARAMETER_LOCAL)",
          unit.name, ranks, dim,
          is_tp ? "cuts none of its trained parameters" : fmt::format("does not cut \"{}\"", name), name,
          is_tp ? "tensor" : "replicate or shard");
    }
  }
  return {};
}

}  // namespace muster::client
