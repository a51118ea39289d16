// Gathers which ranks wait for which, from the engine's graph and direct_pages, into one Snapshot.
#pragma once

#include "api/base/blame/blame.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/observe/straggler_statistics.hpp"
#include "daemon/engine/session/process_state.hpp"
#include "daemon/engine/session/session.hpp"
#include "scheduler/run/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace muster::engine {

struct RankFacts {
  const Session* session = nullptr;  // none: the rank is not attached
  ProcessId process;
  Instant heard{0};                                         // its last command or message
  std::optional<blame::RankState::LastOperation> finished;  // on the engine path
  bool was_attached = false;                                // its slot has had a session
};

struct Evidence {
  const std::string& job;
  Instant now{0};
  Nanos patience{0};
  const scheduler::Graph& graph;
  const DirectPages* direct_pages = nullptr;  // nullptr: there is no direct path
  const RankTable<RankFacts>& ranks;
  const StragglerStatistics* stragglers = nullptr;  // nullptr: nothing is measured
  blame::Snapshot::AskedDaemon asked{};
};

// The snapshot without the states of processes, which cost system calls. Ranks on other nodes are unknown
// here.
blame::Snapshot snapshot_of(const Evidence& evidence);
// Adds what the supervisor needs to merge the snapshots of several nodes (api/base/blame/merge.hpp).
void add_for_merge(const Evidence& evidence, blame::Snapshot& snapshot);

// The wait in which the rank's next start on that lane stands, or that blocks this start.
std::optional<std::size_t> wait_on_lane(const blame::Snapshot& snapshot, const scheduler::Graph& graph,
                                        Rank rank, std::uint32_t lane);
// The wait of the direct path in which the group's member `rank` is.
std::optional<std::size_t> wait_run_by(const blame::Snapshot& snapshot, GroupId group, std::uint32_t rank);

// Looks at the processes of ranks for which others wait: those of wait `about` first, and at most
// `looks_max`. Without `about`, then also at those of all other ranks.
void look_at_processes(blame::Snapshot& snapshot, const RankTable<RankFacts>& ranks,
                       const ProcessProbe& probe, std::optional<std::size_t> about, std::size_t looks_max);

}  // namespace muster::engine
