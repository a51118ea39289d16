// Loading: fill arrays from a checkpoint. Members agree on which one, and on the outcome; each reads for
// itself.
#pragma once

#include "api/base/result.hpp"
#include "api/base/store/checkpoint_list.hpp"
#include "api/client/checkpoint/group_members.hpp"

#include <muster/checkpoint.h>

#include <string>

namespace muster::client {

muster_checkpoint_info info_of(const store::CheckpointEntry& entry);

// A collective. `own`: why this member cannot, if it cannot. Errors: as checkpoint.h says.
Result<muster_checkpoint_info> load_checkpoint(GroupMembers& members, const Status& own,
                                               const std::string& folder,
                                               const muster_checkpoint_load_options& said);

}  // namespace muster::client
