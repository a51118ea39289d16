// Coverage: whether a unit accounts for every dim of the mesh (decision D33).
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

namespace muster::client {

// Checks each dim of the mesh but pp: it cuts each trained parameter of the unit, or the unit names it, alone
// or within a product. Along tp another parameter of the unit may be the one that is cut. Otherwise replicas
// would be trained differently, which MUSTER_PARAMETER_LOCAL says is intended. Asks the daemon the first
// time. Errors: kBadArgument with unit, parameter and dim; those of muster_group_ranks.
Status check_covered(muster_session* session, const UnitFacts& unit);

}  // namespace muster::client
