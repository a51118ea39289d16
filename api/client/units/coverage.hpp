// Coverage: whether a unit accounts for every dim of the mesh (decision D33).
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

namespace muster::client {

// Along each dim of the mesh but pp, a trained parameter of the unit is cut, or the unit names the dim, alone
// or within a product. Else replicas would train apart. A unit all of whose trained parameters are
// MUSTER_PARAMETER_LOCAL means that. Asks the daemon the first time. Errors: kBadArgument with unit,
// parameter and dim; those of muster_group_ranks.
Status check_covered(muster_session* session, const UnitFacts& unit);

}  // namespace muster::client
