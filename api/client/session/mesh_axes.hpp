// Axes of a layout: which dims of a mesh may stand beside each other.
#pragma once

#include "api/base/result.hpp"

#include <muster/muster.h>

#include <span>

namespace muster::client {

struct NamedAxis {
  const char* name = nullptr;  // NULL: none
  bool of_mesh = false;        // its ranks are those of the mesh's dim; else the name is a label
};

// Refuses two axes of one name, and two dims that have more ranks in common than the caller: its coordinate
// along one would depend on the other. Asks the daemon the first time. `session` may be NULL without axes of
// a mesh. Errors: kBadArgument with both axes; those of muster_group_ranks.
Status check_apart(muster_session* session, std::span<const NamedAxis> axes);

}  // namespace muster::client
