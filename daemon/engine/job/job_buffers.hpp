// JobBuffers: the memory of a job's buffers, which are carved from a rank's arena, named, node-shared, or
// imported.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/memory/arena.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/memory/named_memory.hpp"
#include "daemon/engine/memory/rank_devices.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "daemon/engine/session/session.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace muster::engine {

// Owns    each rank's arena, and named memory.
// Thread  the conductor. alloc, free: they also take the engine's lock for the session's table of buffers,
//         which the holder of the lock reads.
// Bound   by the JobSpec.
// Fails   alloc, free: as muster.h says.
class JobBuffers {
 public:
  // `direct_pages`: nullptr if there is no direct path. Sessions must be destroyed before the JobBuffers.
  JobBuffers(const control::JobSpec& spec, EngineLock& lock, const RankDevices& devices,
             const scheduler::Graph& graph, const RankSlots& slots, DirectPages* direct_pages);

  // `imported`: the memory that came with the message; -1: none. Fills the grant. *descriptor is borrowed;
  // -1: the client has the descriptor of that segment already.
  Result<Handle> alloc(Session& session, const shm::BufferAlloc& request, int imported,
                       shm::BufferGrant* grant, int* descriptor);
  Status free(Session& session, Handle handle);
  // Frees all buffers of a session that has ended.
  void give_back(Session& session, SessionBuffers::Gone& gone);

  Arena& arena(Rank rank) { return *arenas_[rank]; }
  const Arena& arena(Rank rank) const { return *arenas_[rank]; }
  NamedMemory& named() { return named_; }

 private:
  Result<Handle> carve(Session& session, std::uint64_t bytes);
  Result<Handle> alloc_named(Session& session, const shm::BufferAlloc& request, std::string_view name);
  Result<Handle> import(Session& session, const shm::BufferAlloc& request, int memory);
  // Tells peers how many segments of the rank's arena are gone.
  void tell_retired(Rank rank);

  EngineLock& lock_;
  const RankDevices& devices_;
  const scheduler::Graph& graph_;
  const RankSlots& slots_;
  DirectPages* direct_pages_;
  RankTable<std::unique_ptr<Arena>> arenas_;
  NamedMemory named_;
};

}  // namespace muster::engine
