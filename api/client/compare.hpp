// Comparison: the members of a group tell each other digests of what must be equal, and find alike whether it
// is (decision M13).
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/client/digest.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

struct muster_session;

namespace muster::client {

// Owns    a buffer of the session through which digests go; the session has the plans.
// Thread  the session's.
// Bound   32 bytes for each member, and a plan for each group.
// Fails   as the collective that it runs, and NO_RESOURCE for buffer and plan; CORRUPT and MISMATCH: see
// judge().
class Comparison {
 public:
  explicit Comparison(muster_session& session) : session_(session) {}

  // All that could be refused to this rank alone; later calls for the group cost a look.
  Status prepare(muster_group group);
  // Members meet with what they hold. `what` is named in the text. timeout 0: the job's default.
  Status compare(muster_group group, const Held& held, std::string_view what, Nanos timeout);
  // The group is gone.
  void forget(muster_group group) { plans_.erase(group); }

 private:
  Status reserve(std::size_t members);
  Status gather(muster_group group, const Held& held, Nanos timeout);

  struct Gathering {
    muster_plan plan = 0;
    std::byte* memory = nullptr;
  };
  muster_session& session_;
  muster_buffer buffer_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::unordered_map<muster_group, Gathering> plans_;
};

}  // namespace muster::client
