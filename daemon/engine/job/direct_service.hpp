// DirectService: answers questions of clients about the direct path: where the memory of peers is, and how an
// operation that does not go on has ended.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/job/job_buffers.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/nodes/faults.hpp"
#include "daemon/engine/observe/reports.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::engine {

// Owns    nothing.
// Thread  the conductor; calls that change state take the engine's lock.
// Bound   -
// Fails   UNSUPPORTED if there is no direct path; BAD_ARGUMENT, STALE. Other errors as each call says.
class DirectService {
 public:
  DirectService(EngineLock& lock, const scheduler::Graph& graph, RankSlots& slots, const JobBuffers& buffers,
                Faults& faults, Reports& reports, DirectPages* direct_pages)
      : lock_(lock),
        graph_(graph),
        slots_(slots),
        buffers_(buffers),
        faults_(faults),
        reports_(reports),
        direct_pages_(direct_pages) {}

  // Fills the answer; returns the group's members, by index.
  Result<std::vector<shm::DirectMember>> group(const Session& session, std::uint64_t group,
                                               shm::DirectGroupAnswer* answer) const;
  // Read-only memory of another rank.
  Result<shm::Descriptor> segment(std::int32_t rank, std::uint64_t* bytes) const;
  Result<shm::Descriptor> arena(std::int32_t rank, std::uint32_t segment, std::uint64_t* bytes) const;
  // How the client's epoch has ended, and in which epoch it goes on. STATE: its epoch has not ended.
  Result<shm::DirectEndAnswer> end(const Session& session, const shm::DirectMessage& message,
                                   std::string* text);
  // The deadline of the client's operation has passed: ends the group's epoch if a member is missing.
  Status overdue(const Session& session, const shm::DirectMessage& message);
  // The difference among the members of the operation. Never OK.
  Status disagree(const Session& session, const shm::DirectMessage& message);

 private:
  Status check_rank(std::int32_t rank) const;
  Result<DirectQuestion> question(const Session& session, const shm::DirectMessage& message) const;
  std::string difference_in(const DirectQuestion& question) const;

  EngineLock& lock_;
  const scheduler::Graph& graph_;
  RankSlots& slots_;
  const JobBuffers& buffers_;
  Faults& faults_;
  Reports& reports_;
  DirectPages* direct_pages_;
};

}  // namespace muster::engine
