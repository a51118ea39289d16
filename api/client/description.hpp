// A collective in the words of the daemon: one message and the lists behind it. Whatever this rank does not
// use in the operation is left out, so that equal work has equal bytes, which are the key of the plan cache.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/control.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::client {

struct Description {
  shm::PlanCollective message;
  std::vector<std::byte> lists;

  std::string key() const;
};

// Reads the caller's lists: those that member `index` of `ranks` has in the operation, and no others.
// kBadArgument naming field and value: NULL lists with a count, whatever the operation does not have at any
// member, a site that is too long. kNoResource: more than one message holds. All else is for the daemon to
// check.
Result<Description> describe(const muster_collective& c, std::int32_t index, std::int32_t ranks);

// The lane on which a collective takes place that is run and not started. A function of what all members
// agree on, so they meet there.
muster_lane usual_lane(const shm::PlanCollective& collective);

}  // namespace muster::client
