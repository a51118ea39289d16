// Which dims of the mesh cut a parameter, and so which ranks have the same part of it.
#pragma once

#include "api/base/result.hpp"
#include "api/client/units/facts.hpp"

#include <string_view>

namespace muster::client {

// Whether ranks that differ along a basic dim of the mesh have different parts of the parameter. Axes of its
// layout may be products of dims.
bool is_cut_by(const UnitParameter& parameter, std::string_view dim);

// Errors: kUnsupported, if the parameter is sharded over dims of which is_cut_by() does not know.
Status check_dims(const UnitParameter& parameter);

}  // namespace muster::client
