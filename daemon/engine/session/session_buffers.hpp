// SessionBuffers: the buffers of one session, by handle.
#pragma once

#include "api/base/bounded.hpp"
#include "api/shm/completion.hpp"
#include "daemon/engine/memory/arena.hpp"
#include "daemon/engine/memory/named_memory.hpp"
#include "scheduler/run/plan.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::engine {

struct Buffer {
  Arena::Grant grant;
  std::uint64_t bytes = 0;          // as asked for: the bound of every access
  std::uint32_t plans = 0;          // how many plans name it
  NamedMemory::Hold name;           // of a named buffer
  std::uint64_t shared_memory = 0;  // which memory its ranks have in common; 0: it is this rank's alone
  GroupId shared_by;                // the group of those ranks
};

// Owns    the buffers, and their memory in the rank's arena.
// Thread  the conductor changes them under the engine's lock; the conductor, or the lock's holder, reads.
// Bound   buffers_max.
// Fails   add: NO_RESOURCE. free: STALE, BUSY.
class SessionBuffers {
 public:
  // Memory without users. Let go of it without the engine's lock, since that may take long.
  using Gone = std::vector<std::shared_ptr<device::Memory>>;

  SessionBuffers(std::uint32_t buffers_max, Arena& arena, shm::CounterWriter& counters)
      : arena_(arena), counters_(counters), buffers_(buffers_max) {}

  // Adds a buffer with memory of the rank's arena. On failure the memory goes back to the arena.
  Result<Handle> add(Buffer buffer);
  // Errors: NO_RESOURCE if no more buffers are allowed.
  Status check_limit() const;
  const Buffer* find(Handle handle) const { return buffers_.find(handle); }
  // Whether the session has a named buffer of that identity.
  bool holds(std::uint64_t identity) const;
  // How many buffers the group shares.
  std::size_t shared_by(GroupId group) const;
  // Appends the memory to `gone`.
  Status free(Handle handle, Gone& gone);
  // hold(): the plan names its buffers from now on. release(): it does no more.
  void hold(const scheduler::Plan& plan);
  void release(const scheduler::Plan& plan);
  // True once per segment, when the client does not have its descriptor yet.
  bool introduce_segment(std::uint32_t segment);
  // The session is over: all buffers go back to the arena, and named memory stays.
  void give_back(Gone& gone);

 private:
  Arena& arena_;
  shm::CounterWriter& counters_;
  SlotMap<Buffer> buffers_;
  std::vector<bool> introduced_;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_peak_ = 0;
};

}  // namespace muster::engine
