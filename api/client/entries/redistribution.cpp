// Plans of the C API that carry a tensor from one layout to another.
#include "api/base/layout/redistribution.hpp"
#include "api/base/collective/operations.hpp"
#include "api/client/entries/redistributed.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/session/session.hpp"

#include <iterator>
#include <string>
#include <vector>

#include <muster/layouts.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Layout;
using muster::Redistribution;
using muster::Result;
using muster::Status;
using muster::client::with_session;

namespace {

// Dims of each mesh that are products of its axes, after the axes themselves.
constexpr const char* kDims[] = {"pp",     "dp_replicate", "dp_shard",    "cp",    "domain",
                                 "tp",     "dp",           "dp_shard_cp", "dp_cp", "weight",
                                 "non_pp", "ep",           "efsdp",       "world"};

// The mesh's group of these ranks of the job, in this order. The axes' own names come first: they may be
// flattened dims.
Result<muster_group> group_of(muster_session& session, const std::vector<std::int32_t>& ranks,
                              const Redistribution& redistribution, muster_op op) {
  std::vector<std::string> names;
  std::string axes;
  for (const muster::Redistribution::AxisReduction& reduction : redistribution.reductions()) {
    const std::string& name = redistribution.from().axes()[reduction.axis].name;
    if (!name.empty()) names.push_back(name);
    axes += (axes.empty() ? "" : ", ") + redistribution.from().axis_text(reduction.axis);
  }
  names.insert(names.end(), std::begin(kDims), std::end(kDims));
  for (const std::string& name : names) {
    const auto dim = session.groups().dim(name.c_str());
    const bool unknown =
        !dim && (dim.error().code() == Code::kNotFound || dim.error().code() == Code::kBadArgument);
    if (!dim && !unknown) return fail(dim.error());
    if (unknown || dim->size != static_cast<std::int32_t>(ranks.size())) continue;
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session.groups().facts(dim->group));
    if (facts->ranks == ranks) return dim->group;
  }
  return fail(
      Code::kUnsupported,
      "this is one {} along {}, but no dim of the mesh has ranks {} as a group; flatten these dims "
      "(muster_mesh_flatten) and name one axis so, or make a group of the ranks (muster_group_make) and "
      "plan over that",
      muster::op_name(op), axes, fmt::join(ranks, ", "));
}

Result<muster_plan> plan_of(muster_session& session, muster_group group, const Layout& from,
                            const muster_tensor& source, const Layout& to, const muster_tensor& target) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, session.groups().facts(group));
  if (facts->rank < 0) return fail(Code::kBadArgument, "this rank is not a member of group {}", facts->name);
  const auto members = static_cast<std::int64_t>(facts->ranks.size());
  for (const Layout* layout : {&from, &to})
    if (layout->ranks() != members)
      return fail(Code::kBadArgument, "layout {} has {} ranks, but group {} has {} members",
                  layout == &from ? "from" : "to", layout->ranks(), facts->name, members);
  MUSTER_ASSIGN_OR_RETURN(const auto redistribution, Redistribution::make(from, to));
  MUSTER_ASSIGN_OR_RETURN(const auto made,
                          muster::client::redistributed(redistribution, facts->rank, source, target));
  if (!made.ranks.empty()) {
    std::vector<std::int32_t> ranks;  // of the job
    for (const std::int64_t rank : made.ranks) ranks.push_back(facts->ranks[static_cast<std::size_t>(rank)]);
    MUSTER_ASSIGN_OR_RETURN(group, group_of(session, ranks, redistribution, made.collective.op));
  }
  return session.plans().make(made.in(group));
}

}  // namespace

extern "C" {

muster_status_t muster_plan_redistribution(muster_session* session, muster_group group,
                                           const muster_layout* from, const muster_tensor* source,
                                           const muster_layout* to, const muster_tensor* target,
                                           muster_plan* plan) {
  if (plan != nullptr) *plan = 0;
  return with_session(session, [&]() -> Status {
    MUSTER_RETURN_IF_ERROR(muster::client::check_given(
        {{"from", from}, {"source", source}, {"to", to}, {"target", target}, {"plan", plan}}));
    MUSTER_ASSIGN_OR_RETURN(*plan, plan_of(*session, group, from->layout, *source, to->layout, *target));
    return {};
  });
}
}
