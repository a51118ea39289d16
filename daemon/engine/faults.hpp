// Faults: how operations end otherwise than well, on both paths at once: aborts, interrupts, departures, and
// ranks that will not come (decision D18).
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/control.hpp"
#include "daemon/engine/board.hpp"
#include "daemon/engine/engine_lock.hpp"
#include "daemon/engine/rank_slots.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::engine {

// Owns    what each rank was told last.
// Thread  abort, interrupt, absent, expect_all: the conductor; they take the engine lock. All else: under it.
// Bound   one cause a rank.
// Fails   as each says.
class Faults {
 public:
  // `board`: nullptr if there is no direct path.
  Faults(std::uint32_t world, const Clock& clock, EngineLock& lock, scheduler::Graph& graph, RankSlots& slots,
         Board* board)
      : clock_(clock), lock_(lock), graph_(graph), slots_(slots), board_(board), told_(world) {}

  // The session aborts its group. STALE.
  Status abort(Session& session, std::uint64_t group);
  // The rank leaves what it waits in, on a lane or directly: that ends for everybody in it. BAD_ARGUMENT,
  // STALE.
  Status interrupt(Session& session, const shm::InterruptMessage& message);
  // A rank will not come, or not come back, says who started it; and all of them may come again.
  void absent(Rank rank, const std::string& text);
  void expect_all();

  // The rank has a client again.
  void attached(Rank rank);
  // It has none any more; `text` tells the others how.
  void left(Rank rank, const std::string& text);
  // Every group ends with `code`.
  void end_all(Code code, const std::string& text);
  // The group's present epoch on the direct path ends with a fault of its own.
  void end_direct(GroupId group, scheduler::Cause cause);
  // The rank's client hears of that cause of the direct path.
  void tell(Rank rank, const scheduler::CausePtr& cause);
  // Which groups nobody may run in, because a member will not come.
  void refresh_absences();

 private:
  struct Told {  // the latest cause of the direct path that a rank's client was told
    scheduler::CausePtr cause;
    std::uint64_t recorded = 0;  // how far it had come then: operations run directly
    std::uint64_t starts = 0;    // and on the engine path
  };
  void lose_direct(Rank rank, const scheduler::CausePtr& loss);
  scheduler::CausePtr reason_to_leave(Rank rank) const;

  const Clock& clock_;
  EngineLock& lock_;
  scheduler::Graph& graph_;
  RankSlots& slots_;
  Board* board_;
  std::vector<std::optional<Told>> told_;  // by rank
};

}  // namespace muster::engine
