// Comparison: members gather digests to see whether they hold the same bytes (decision M13).
#pragma once

#include "api/base/result.hpp"
#include "api/client/digest.hpp"
#include "api/client/groups.hpp"
#include "api/client/run/plans.hpp"
#include "api/client/submit/buffers.hpp"
#include "api/shm/completion.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace muster::client {

// Owns    a buffer of the session, for the members' digests, and which plan gathers them in each group.
// Thread  the session's.
// Bound   32 bytes for each member; a plan for each group, and a count for each that spans nodes. A count
//         outlives the group, because another node may have kept that.
// Fails   prepare(): as Plans::cached and Buffers::alloc. judged(): CORRUPT and MISMATCH, see judge().
class Comparison {
 public:
  // All outlive it.
  Comparison(Groups& groups, Buffers& buffers, Plans& plans)
      : groups_(groups), buffers_(buffers), plans_(plans) {}

  // Does all that could fail at this rank alone, before others wait. Later calls for the group are cheap.
  Status prepare(muster_group group);
  // Writes this rank's digest into the buffer and returns the plan whose run gathers all members' digests.
  Result<muster_plan> offer(muster_group group, const Held& held);
  // One more result of a group that spans nodes, in that epoch; returns how many there are with it. Members
  // count alike, because no run begins without all of them, and one that fails ends its epoch.
  std::uint64_t count_shared(const shm::GroupEpoch& met);
  // The result of the gathered digests: see judge(). The text names `what`.
  Status judged(muster_group group, std::string_view what);
  // The group is gone.
  void forget(muster_group group) { rounds_.erase(group); }

 private:
  Status reserve(std::size_t members);

  struct Round {
    muster_plan plan = 0;
    std::byte* memory = nullptr;
  };
  struct Counted {
    std::uint64_t epoch = 0;
    std::uint64_t results = 0;
  };
  Groups& groups_;
  Buffers& buffers_;
  Plans& plans_;
  muster_buffer buffer_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::unordered_map<muster_group, Round> rounds_;
  std::unordered_map<std::uint64_t, Counted> counted_;  // by shm::GroupEpoch::group
};

}  // namespace muster::client
