// Plans: made by a message to the engine, kept for one-shot calls, given new counts, destroyed.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/groups.hpp"
#include "api/client/run/description.hpp"
#include "api/client/run/direct_path.hpp"
#include "api/client/run/plan_cache.hpp"
#include "api/client/submit/buffers.hpp"
#include "api/client/submit/plan_table.hpp"
#include "api/shm/completion.hpp"

#include <muster/muster.h>

#include <string>

namespace muster::client {

// Owns    the cache of one-shot calls.
// Thread  the session's.
// Bound   the engine's limit for plans; PlanCache::kMax one-shot calls.
// Fails   as Connection::ask; BAD_ARGUMENT for operations that cannot be described; STALE for an unknown
//         plan; NO_RESOURCE if all cached plans are in flight; UNSUPPORTED for counts that cannot change.
class Plans {
 public:
  struct Uses {  // all outlive it
    Connection& connection;
    Groups& groups;
    Buffers& buffers;
    PlanTable& table;
    shm::CompletionReader& completion;
    DirectPath* direct;  // null in a job without the direct path
    CheckMode* check;    // null if the session is not in check mode
  };
  explicit Plans(const Uses& uses)
      : connection_(uses.connection),
        groups_(uses.groups),
        buffers_(uses.buffers),
        table_(uses.table),
        completion_(uses.completion),
        direct_(uses.direct),
        check_(uses.check) {}

  Result<muster_plan> make(const muster_kernel& kernel);
  Result<muster_plan> make(const muster_collective& collective);
  // For one-shot calls: the same description gives the same plan.
  Result<muster_plan> cached(const muster_kernel& kernel);
  Result<muster_plan> cached(const muster_collective& collective);
  bool has(muster_plan plan) const { return table_.find(plan) != nullptr; }
  // Null: the session has no such plan.
  const PlanRecord* record(muster_plan plan) const { return table_.find(plan); }

  // Sets new counts: count, source_blocks and target_blocks of `counts`; the rest is not read. The plan's
  // next start tells the engine (decision M8).
  Status recount(muster_plan plan, const muster_collective& counts);
  Status destroy(muster_plan plan);
  // Destroys the cached plans of a group or a buffer that is about to be freed. Their callers have no handles
  // of these plans.
  Status forget_cached(muster_group group);
  Status forget_cached_over(muster_buffer buffer);

 private:
  Result<Description> describe(const muster_collective& collective);
  Result<muster_plan> make(const muster_collective& collective, const Description& description);
  Rooms rooms_of(const shm::PlanCollective& message, const Described& described) const;
  Status make_room_in_cache();
  void tell_check(const PlanRecord& record) const;
  template<class IsOver>
  Status forget_cached_if(IsOver is_over);

  Connection& connection_;
  Groups& groups_;
  Buffers& buffers_;
  PlanTable& table_;
  shm::CompletionReader& completion_;
  DirectPath* direct_;
  CheckMode* check_;
  PlanCache cache_;
};

}  // namespace muster::client
