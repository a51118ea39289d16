// Plans of the C API that carry a tensor from one layout to another.
#include "api/base/layout/redistribution.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/redistributed.hpp"
#include "api/client/session.hpp"

#include <utility>

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
  MUSTER_ASSIGN_OR_RETURN(auto made,
                          muster::client::redistributed(redistribution, facts->rank, source, target));
  muster_collective& collective = made.collective;
  collective.group = group;
  collective.sends = made.sends.data();
  collective.send_count = static_cast<std::uint32_t>(made.sends.size());
  collective.receives = made.receives.data();
  collective.receive_count = static_cast<std::uint32_t>(made.receives.size());
  collective.site = "muster_plan_redistribution";
  return session.plans().make(collective);
}

}  // namespace

extern "C" {

muster_status_t muster_plan_redistribution(muster_session* session, muster_group group,
                                           const muster_layout* from, const muster_tensor* source,
                                           const muster_layout* to, const muster_tensor* target,
                                           muster_plan* plan) {
  if (plan != nullptr) *plan = 0;
  return with_session(session, [&]() -> Status {
    if (from == nullptr || source == nullptr || to == nullptr || target == nullptr || plan == nullptr)
      return failure(Code::kBadArgument, "from, source, to, target and plan must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(*plan, plan_of(*session, group, from->layout, *source, to->layout, *target));
    return {};
  });
}
}
