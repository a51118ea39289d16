// SetMeetings: where the ranks of a set wait for each other.
#pragma once

#include "api/base/result.hpp"
#include "api/client/set/lanes.hpp"

#include <muster/muster.h>

#include <span>
#include <utility>
#include <vector>

namespace muster::client {

// Lanes and groups on which a set starts operations, in an order that all ranks have. It follows from the
// agreement of the ranks, and not from their starts: one of them may have failed before.
//
// Owns    the list.
// Thread  the session's.
// Bound   one entry for each lane and group.
// Fails   as the calls of the C API that it makes.
class SetMeetings {
 public:
  void add(muster_lane lane, muster_group group);  // once; of this rank alone never
  // The groups of dims, where the mesh has them.
  Status add(muster_session* session, muster_lane lane, std::span<const char* const> dims);
  void clear() { list_.clear(); }

  // Where ranks have failed in different operations, they begin together again.
  Status meet(SetLanes& lanes) const;
  // Ends the operations for which the other ranks wait, and tells them why.
  void abort(muster_session* session, const Status& why) const;

 private:
  std::vector<std::pair<muster_lane, muster_group>> list_;
};

}  // namespace muster::client
