// Agreement: whether all ranks have made the same set, before the first byte moves.
#pragma once

#include "api/base/result.hpp"

#include <muster/muster.h>

#include <string>

namespace muster::client {

// A collective of the group. `what`: what the set has, for messages: "units". `own`: whether this rank is
// ready. `description`: a line for each fact. Errors, the same at all members: the refusal of the first rank
// that is not ready; MISMATCH with the first line that differs; those of muster_object_gather.
Status agree(muster_session* session, muster_group group, const char* what, const Status& own,
             const std::string& description);

}  // namespace muster::client
