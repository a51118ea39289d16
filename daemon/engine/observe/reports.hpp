// Reports: explains waits: the cause at a deadline, `muster hang`, and files.
#pragma once

#include "api/base/blame/blame.hpp"
#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/observe/flight_dump.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/observe/snapshot.hpp"
#include "daemon/engine/session/process_state.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace muster::engine {

// Owns    the report of the latest deadline, and the circle that a deadline has broken.
// Thread  hang, snapshot, flight, write: the conductor; they take the engine's lock. All else: under it.
// Bound   kExplainedInTurnMax explanations a turn, kReportsWrittenMax files of each kind.
// Fails   never. A file that cannot be written is logged.
class Reports {
 public:
  // `direct_pages`: nullptr if there is no direct path.
  Reports(const control::JobSpec& spec, const Clock& clock, EngineLock& lock, const ProcessProbe& probe,
          const scheduler::Graph& graph, const RankSlots& slots, Metrics& metrics,
          const DirectPages* direct_pages);
  ~Reports();

  // Which rank waits for which now, which one is at fault, and the latest deadline's report:
  // daemon/control/README.md, `hang`.
  control::Json hang();
  // The same as facts, for a supervisor that merges those of several nodes: daemon/control/README.md,
  // `snapshot`.
  control::Json snapshot();
  // The operations that each rank has run: flight_dump.hpp.
  control::Json flight() const;
  // Read-only: the job's counters (api/shm/job_counters.hpp).
  Result<shm::Descriptor> counters() const { return metrics_.counters(); }
  // Writes the files of deadlines that have passed. Call now and then.
  void write();

  // The deadline of a start has passed in the turn that began at `turn`: adds the reason to the cause.
  void overdue(Rank rank, std::uint32_t lane, Instant turn, scheduler::Cause& cause);
  // The same for the direct operation in which the rank waits.
  void overdue(Rank rank, GroupId group, scheduler::Cause& cause);

 private:
  struct DeadlineReport;
  struct BrokenCircle {
    blame::Snapshot snapshot;
    blame::Report report;
  };
  static bool is_in(const BrokenCircle& circle, const blame::Snapshot& now, std::size_t about);
  enum class Reader : std::uint8_t { kPeople, kSupervisor };
  blame::Snapshot look(Reader reader, control::Json* latest_deadline);
  Evidence evidence(const RankTable<RankFacts>& facts, Instant now) const;
  RankTable<RankFacts> rank_facts() const;
  RankTable<RankFlights> all_flights() const;
  blame::Snapshot snapshot(const RankTable<RankFacts>& facts, Instant now) const;
  std::string one_of_many() const;
  void explain(scheduler::Cause& cause, blame::Snapshot snapshot, const RankTable<RankFacts>& facts,
               std::size_t about);

  const control::JobSpec& spec_;
  const Clock& clock_;
  EngineLock& lock_;
  const ProcessProbe& probe_;
  const scheduler::Graph& graph_;
  const RankSlots& slots_;
  Metrics& metrics_;
  const DirectPages* direct_pages_;
  std::unique_ptr<DeadlineReport> latest_;
  std::optional<BrokenCircle> broken_circle_;  // the latest that a deadline has broken
  Instant explained_turn_{0};
  std::uint32_t explained_in_turn_ = 0;
  std::uint32_t deadlines_ = 0;       // that have been reported
  std::uint32_t deadlines_seen_ = 0;  // as deadlines_ was when files were written last
  std::uint32_t written_ = 0;         // files of each kind
};

}  // namespace muster::engine
