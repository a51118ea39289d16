// Which dims of the mesh cut a parameter, and so which ranks have the same part of it.
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace muster::client {

// The world ranks of a group, in its order. Asks the daemon the first time. Errors: those of
// muster_group_ranks.
Result<std::vector<std::int32_t>> ranks_of(muster_session* session, muster_group group);

// Whether ranks that differ along a basic dim of the mesh have different parts of the parameter. Axes of its
// layout may be products of dims.
bool is_cut_by(const UnitFacts::Parameter& parameter, std::string_view dim);

// Errors: kBadArgument, if gradients of the parameter are reduced over ranks that have different parts of it:
// over the unit's `replicate`, or over its `tensor` where they are summed.
Status check_reduced(muster_session* session, const UnitFacts& unit, const UnitFacts::Parameter& parameter);

// Errors: kUnsupported, if the parameter is sharded over dims of which is_cut_by() does not know.
Status check_dims(const UnitFacts::Parameter& parameter);

}  // namespace muster::client
