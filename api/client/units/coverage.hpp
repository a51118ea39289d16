// Coverage: whether a unit accounts for every dim of the mesh (decision D33).
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

namespace muster::client {

// Checks each dim of the mesh but pp: it cuts each trained parameter of the unit, or the unit names it, alone
// or within a product. Otherwise replicas would be trained differently. That is intended in a unit all of
// whose trained parameters are MUSTER_PARAMETER_LOCAL. Asks the daemon the first time. Errors: kBadArgument
// with unit, parameter and dim; those of muster_group_ranks.
Status check_covered(muster_session* session, const UnitFacts& unit);

}  // namespace muster::client
