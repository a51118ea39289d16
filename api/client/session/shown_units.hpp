// ShownUnits: the figures of a session's sets of units, where the engine reads them for `muster top`.
#pragma once

#include "api/shm/layout.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <map>

namespace muster::client {

// Owns    the figures of each set.
// Thread  the session's.
// Bound   the sets of the session.
// Fails   never.
class ShownUnits {
 public:
  explicit ShownUnits(shm::SubmissionHeader* header) : header_(header) {}

  // `set` names a set of units. Sets add up; the prefetch is that of the latest.
  void update(const void* set, const shm::UnitFigures& figures);
  void remove(const void* set);

 private:
  void publish(const shm::UnitFigures& latest);

  shm::SubmissionHeader* header_;
  std::map<const void*, shm::UnitFigures> sets_;
};

// For units, which know no more of a session than the C API: `figures` null removes the set.
void show_units(muster_session* session, const void* set, const shm::UnitFigures* figures);
// As above: Submission::mark_step().
muster_status_t mark_step(muster_session* session, std::uint64_t step);

}  // namespace muster::client
