// JobLanes: opens and closes lanes when clients ask.
#pragma once

#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "daemon/engine/session/session.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <string_view>

namespace muster::engine {

// Owns    nothing: the graph has the lanes, the executor their streams.
// Thread  the conductor; takes the engine's lock.
// Bound   shm::kLanesMax lanes a session.
// Fails   open: kBadArgument, kDuplicate, kNoResource. close: kBadArgument, kBusy. open_events: as
// Publication.
class JobLanes {
 public:
  JobLanes(EngineLock& lock, scheduler::Graph& graph, scheduler::Executor& executor, RankSlots& slots,
           Metrics& metrics)
      : lock_(lock), graph_(graph), executor_(executor), slots_(slots), metrics_(metrics) {}

  // Returns the lane's number. An empty name: for kernels alone.
  Result<std::uint32_t> open(const Session& session, std::uint32_t lane_class, std::string_view name);
  Status close(Session& session, std::uint32_t lane);
  // The client's end of a socket that gets a byte at each completion and is closed with the session.
  Result<shm::Descriptor> open_events(Session& session);

 private:
  EngineLock& lock_;
  scheduler::Graph& graph_;
  scheduler::Executor& executor_;
  RankSlots& slots_;
  Metrics& metrics_;
};

}  // namespace muster::engine
