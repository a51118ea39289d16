// Evictions: jobs without ranks end at once to make room for another job of the same owner.
//
// A job that its ranks have made, and that all of them have left, waits for them to come back. It keeps a
// place and memory meanwhile. If its owner needs these, the job that has been idle for longest ends, on all
// its nodes. An engine that was refused memory waits until that job is gone, and then asks again. No job ends
// for a request that this node would still refuse afterwards.
#pragma once

#include "daemon/supervisor/jobs/job_memory.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"

#include <cstdint>
#include <set>
#include <string>

namespace muster::supervisor {

// Owns    the names of jobs whose engines wait for memory.
// Thread  the supervisor's loop.
// Bound   one job for each call.
// Fails   never. Jobs of the cluster file, of `muster run` and of other owners stay. That of a container that
//         is gone ends for anybody.
class Evictions {
 public:
  Evictions(const JobTable& table, RunningJobs& jobs, const MemoryShares& memory)
      : table_(table), jobs_(jobs), memory_(memory) {}

  // Ends the job that has been idle for longest, of the owner or of a container that is gone, unless one is
  // giving way already. `wanted`: what the room is for, for the log. False: there is none.
  bool make_room(const control::Actor& owner, const std::string& wanted);
  // The same for the place of that job. True: a job that is ending, or that can, leaves it its place.
  bool place_may_come(const control::JobSpec& wanted);
  // Ends that job if it is idle and the owner's own. False: it is not.
  bool replace(const std::string& job, const control::Actor& owner, const std::string& wanted);
  // The job's engine lacks so many bytes. The engine is told once a job is gone, or that none can make room.
  void make_memory(const std::string& job, std::uint64_t bytes);
  // A job is gone, or one that was to give way goes on.
  void on_change();

 private:
  enum class Room : std::uint8_t { kPerhaps, kNone };
  bool is_candidate(const Job& job, const control::Actor& owner) const;
  void answer(const std::string& job, Room room);
  void evict(const Job& job, const std::string& wanted);

  const JobTable& table_;
  RunningJobs& jobs_;
  const MemoryShares& memory_;
  std::set<std::string> waiting_;
};

}  // namespace muster::supervisor
