#include "api/client/checked/compared_replicas.hpp"

#include "api/client/units/mesh_dims.hpp"
#include "api/client/units/replicas.hpp"

#include <cstdio>

namespace muster::client {

// A parameter of which it is not known which dims cut it is left out. Members along the dim have equal
// shards: if one of them is empty, all are.
std::vector<ComparedReplicas::Parameter> ComparedReplicas::shared_along(const char* dim, bool local) const {
  std::vector<Parameter> all;
  for (std::size_t u = 0; u < set_.units.size(); ++u) {
    const std::vector<UnitFacts::Parameter>& parameters = set_.units[u]->facts().parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].local != local || parameters[p].places.shard_elements() == 0) continue;
      const auto cut = dims_that_cut(set_.session, parameters[p]);
      if (cut && !has(*cut, dim)) all.push_back({u, p});
    }
  }
  return all;
}

Status ComparedReplicas::compare(muster_group group, std::span<const Parameter> parameters) const {
  std::vector<muster_tensor> views;
  for (const Parameter& parameter : parameters) {
    MUSTER_ASSIGN_OR_RETURN(
        const muster_tensor view,
        set_.units[parameter.unit]->tensor(static_cast<std::uint32_t>(parameter.number), MUSTER_UNIT_SHARD));
    views.push_back(view);
  }
  MUSTER_RETURN_IF_ERROR(check_.judge_read("muster_step_begin", views));
  constexpr int kCausesMax = 32;  // more than a group keeps
  for (int i = 0; expects_aborts_ && i < kCausesMax; ++i) {
    Status status = status_of(muster_compare(set_.session, group, views.data(), views.size(), 0));
    if (status.code() != Code::kAborted) return status;
  }
  return status_of(muster_compare(set_.session, group, views.data(), views.size(), 0));
}

Status ComparedReplicas::differs(const char* dim, const Parameter& parameter, bool local, const Status& how) {
  const UnitFacts& facts = set_.units[parameter.unit]->facts();
  const std::string text =
      fmt::format("muster_step_begin: replicas of parameter \"{}\" of unit \"{}\" along \"{}\" differ: {}",
                  facts.parameters[parameter.number].name, facts.name, dim, how.message());
  if (!local)
    return check_.found(
        Status(Code::kCorrupt,
               fmt::format("rank {}: {}; draw or load them alike (muster_units_broadcast), and reduce their "
                           "gradients along it (replicate)",
                           check_.rank(), text),
               how.culprit()));
  if (told_.insert(parameter).second)
    std::fprintf(stderr,
                 "muster: check mode notes: rank %d: %s; they may, for MUSTER_PARAMETER_LOCAL says so\n",
                 check_.rank(), text.c_str());
  return {};
}

Status ComparedReplicas::compare_along(const char* dim, bool local) {
  muster_group group = MUSTER_GROUP_SELF;
  std::int32_t ranks = 1;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(set_.session, dim, nullptr, &ranks)));
  if (ranks == 1) return {};
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(set_.session, dim, &group)));
  const std::vector<Parameter> all = shared_along(dim, local);
  if (all.empty()) return {};
  const Status alike = compare(group, all);
  if (alike.code() == Code::kUnsupported) return {};  // this process does not see the memory
  if (alike.code() != Code::kCorrupt) return alike;
  for (const Parameter& parameter : all) {
    const Status same = compare(group, {&parameter, 1});
    if (same.code() != Code::kCorrupt) {
      MUSTER_RETURN_IF_ERROR(same);
      continue;
    }
    MUSTER_RETURN_IF_ERROR(differs(dim, parameter, local, same));
  }
  return {};
}

Status ComparedReplicas::compare() {
  if (!set_.shared) return {};
  Status alike;
  for (const char* dim : kStageDims)
    for (const bool local : {false, true})
      if (alike.ok()) alike = compare_along(dim, local);
  expects_aborts_ = false;
  return alike;
}

}  // namespace muster::client
