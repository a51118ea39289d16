// SessionBuffers: the buffers of one session, by handle.
#pragma once

#include "api/base/bounded.hpp"
#include "api/shm/completion.hpp"
#include "daemon/engine/arena.hpp"
#include "daemon/engine/named_memory.hpp"
#include "scheduler/plan/plan.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::engine {

struct Buffer {
  Arena::Grant grant;
  std::uint64_t bytes = 0;          // as asked for: the bound of every access
  std::uint32_t plans = 0;          // that name it
  NamedMemory::Hold name;           // of a named buffer
  std::uint64_t shared_memory = 0;  // which memory its ranks have in common; 0: it is this rank's alone
  GroupId shared_by;                // who they are
};

// Owns    the buffers, and their memory in the rank's arena.
// Thread  the conductor changes them under the engine's lock; the conductor, or who has the lock, reads.
// Bound   buffers_max.
// Fails   add: NO_RESOURCE. free: STALE, BUSY.
class SessionBuffers {
 public:
  // Memory that is nobody's any more: to be let go without the engine's lock, since it may take long.
  using Gone = std::vector<std::shared_ptr<device::Memory>>;

  SessionBuffers(std::uint32_t buffers_max, Arena& arena, shm::CounterWriter& counters)
      : arena_(arena), counters_(counters), buffers_(buffers_max) {}

  // One with memory of the rank's arena, which it goes back to if this fails.
  Result<Handle> add(Buffer buffer);
  // Errors: NO_RESOURCE if no more buffers are allowed.
  Status check_limit() const;
  const Buffer* find(Handle handle) const { return buffers_.find(handle); }
  // Whether a named buffer of that identity is among them.
  bool holds(std::uint64_t identity) const;
  // How many are shared by the group.
  std::size_t shared_by(GroupId group) const;
  // Appends the memory to `gone`.
  Status free(Handle handle, Gone& gone);
  // A plan names its buffers from now on, or does no more.
  void hold(const scheduler::Plan& plan);
  void release(const scheduler::Plan& plan);
  // True once per segment: the client does not have its descriptor yet.
  bool introduce_segment(std::uint32_t segment);
  // The session is over: all go back to the arena, and named memory stays.
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
