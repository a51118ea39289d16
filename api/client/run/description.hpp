// A collective as a message to the engine, with the lists behind it. Fields that this rank does not use in
// the operation are left out. So equal work has equal bytes, and these are its key in the plan cache.
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

// Reads only the lists that member `index` of `ranks` has in the operation. kBadArgument naming field and
// value: a NULL list with a count, a field that the operation has at no member, a site that is too long.
// kNoResource: more than one message holds. The engine checks the rest.
Result<Description> describe(const muster_collective& c, std::int32_t index, std::int32_t ranks);

// The lane of a collective that is run by the engine. It depends only on what all members agree on, so all
// choose the same lane.
muster_lane usual_lane(const shm::PlanCollective& collective);

}  // namespace muster::client
