// Faults: ends operations that cannot complete, on both paths at once: aborts, interrupts, departures, and
// absent ranks (decision D18). A run that is overdue ends through end_direct().
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/nodes/ranks_elsewhere.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace muster::engine {

// Owns    the cause that each rank has got last.
// Thread  abort, interrupt, absent, expect_all, take_offender: the conductor; they take the engine lock. All
//         else: under it.
// Bound   one cause a rank.
// Fails   as each says.
class Faults {
 public:
  // `direct_pages`: nullptr if there is no direct path.
  Faults(const World& world, const Clock& clock, EngineLock& lock, scheduler::Graph& graph, RankSlots& slots,
         RanksElsewhere& elsewhere, DirectPages* direct_pages)
      : clock_(clock),
        lock_(lock),
        graph_(graph),
        slots_(slots),
        elsewhere_(elsewhere),
        direct_pages_(direct_pages),
        told_(world) {}

  // The session aborts its group; `reason` is its text for the others. STALE.
  Status abort(Session& session, std::uint64_t group, std::string_view reason);
  // Ends the operation in which the rank waits, on a lane or on the direct path, for all members.
  // BAD_ARGUMENT, STALE.
  Status interrupt(Session& session, const shm::InterruptMessage& message);
  // absent(): the launcher says that a rank will not come (back). expect_all(): all ranks may come again.
  void absent(Rank rank, const std::string& text);
  void expect_all();
  // A session that broke the protocol, and how; the conductor detaches it.
  std::optional<std::pair<Rank, std::string>> take_offender() const;

  // The rank has a new client.
  void attached(Rank rank);
  // The rank's client has left; `text` tells the other ranks how.
  void left(Rank rank, const std::string& text);
  // If no rank of the job is attached, on any node, the next ones begin a new run.
  void begin_run_if_empty();
  // A group was just made for a rank of this node that is gone by now.
  void missing(GroupId group, Rank rank, const std::string& text);
  // Ends every group with `code`.
  void end_all(Code code, const std::string& text);
  // Ends the group's present epoch on the direct path with a fault of its own.
  void end_direct(GroupId group, scheduler::Cause cause);
  // Notes that the rank's client has got that cause on the direct path.
  void tell(Rank rank, const scheduler::CausePtr& cause);
  // Sets which groups may not begin operations, because a member is absent.
  void refresh_absences();

 private:
  struct Told {  // the latest cause of the direct path that a rank's client was told
    scheduler::CausePtr cause;
    std::uint64_t recorded = 0;  // operations that it had run directly by then
    std::uint64_t starts = 0;    // and on the engine path
  };
  void begin_run_here();
  void lose_direct(Rank rank, const scheduler::CausePtr& loss);
  scheduler::CausePtr reason_to_leave(Rank rank) const;

  const Clock& clock_;
  EngineLock& lock_;
  scheduler::Graph& graph_;
  RankSlots& slots_;
  RanksElsewhere& elsewhere_;
  DirectPages* direct_pages_;
  RankTable<std::optional<Told>> told_;
};

}  // namespace muster::engine
