// Which dims of the mesh cut a parameter, and so which ranks have the same part of it.
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace muster::client {

// The basic dims of a stage, outermost first.
inline constexpr const char* kStageDims[] = {"dp_replicate", "dp_shard", "cp", "domain", "tp"};

// Those of kStageDims along which ranks have different parts of the parameter, as the mesh says: an axis of
// its layout may be a product of dims, and have any name that the user gave to it. Errors: kUnsupported, if
// an axis is not whole dims of the stage, as efsdp where ep > 1; those of muster_mesh_group.
Result<std::vector<std::string_view>> dims_that_cut(muster_session* session,
                                                    const UnitFacts::Parameter& parameter);
inline bool has(const std::vector<std::string_view>& dims, std::string_view dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// Errors: kBadArgument, if gradients of the parameter are reduced over ranks that have different parts of it:
// over the unit's `replicate`, or over its `tensor` where they are summed.
Status check_reduced(muster_session* session, const UnitFacts& unit, const UnitFacts::Parameter& parameter);

}  // namespace muster::client
