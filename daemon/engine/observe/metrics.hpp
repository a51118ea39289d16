// Metrics: counts and notes operations as they happen: starts with their times, late ranks, and the job's
// counters.
#pragma once

#include "api/base/blame/blame.hpp"
#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/observe/flight.hpp"
#include "daemon/engine/observe/straggler_log.hpp"
#include "daemon/engine/observe/straggler_statistics.hpp"
#include "daemon/engine/observe/tally.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace muster::engine {

// Owns    the flight log, the lags, and the job's counters.
// Thread  under the engine's lock; counters() any.
// Bound   that of its parts. submitted(), launched() and retired() need no heap.
// Fails   never.
class Metrics {
 public:
  // `direct_pages`: nullptr if there is no direct path. `workers`: of the engine.
  Metrics(const control::JobSpec& spec, unsigned workers, const scheduler::Graph& graph,
          const scheduler::Executor& executor, const RankSlots& slots, const DirectPages* direct_pages,
          Tally tally);

  // A read-only descriptor of the job's counters (api/shm/job_counters.hpp).
  Result<shm::Descriptor> counters() const;
  const FlightLog& flights() const { return flight_log_; }
  const StragglerStatistics& stragglers() const { return stragglers_; }
  // The rank's last collective on the engine path.
  std::optional<blame::RankState::LastOperation> finished(Rank rank) const;

  // ---- groups, ranks and plans that come and go ---------------------------------------------------
  // Takes the group's ranks and name from the graph.
  void set_group(GroupId group);
  void forget_group(GroupId group);
  void name_group(GroupId group, std::string_view name) { tally_.name_group(group, name); }
  void attached(Rank rank);
  void left(Rank rank, Instant now);
  void expect_lane(Rank rank, std::uint32_t lane) { flight_log_.expect_lane(rank, lane); }
  void expect(const scheduler::CollectiveWork& work);

  // ---- starts ----------------------------------------------------------------------------------
  void submitted(const scheduler::Request& request, Instant now);
  void launched(const scheduler::Step& step, Instant now);
  // All members of the step have come together.
  void met(const scheduler::Step& step) { stragglers_.met(step); }
  // How a start has ended. `present`: the session that made it is the rank's present one.
  struct Retired {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    bool well = false;
    bool present = true;
  };
  void retired(const Retired& start, const scheduler::Plan& plan, const scheduler::Executor::Finished& step);

  // ---- timers ----------------------------------------------------------------------------------
  // Writes the counters, if it is time.
  void tick(Instant now);
  void look_for_stragglers(Instant now);

 private:
  struct LastFinished {  // no strings, which would need heap
    GroupId group;
    const char* label = "";
    std::uint64_t number = 0;
    Instant at{0};
  };
  void log_stragglers(Instant now);

  const control::JobSpec& spec_;
  const scheduler::Graph& graph_;
  const scheduler::Executor& executor_;
  const RankSlots& slots_;
  const DirectPages* direct_pages_;
  const bool cores_for_all_;  // where ranks share cores, a late rank is one that got no core
  FlightLog flight_log_;
  StragglerStatistics stragglers_;
  StragglerLog straggler_log_;
  std::vector<StragglerStatistics::Change> lateness_changes_;  // of the latest look; kept, to need no heap
  RankTable<std::optional<LastFinished>> finished_;
  Tally tally_;
  std::vector<Tally::Counted> counted_;  // kept, so that a tick needs no heap
};

}  // namespace muster::engine
