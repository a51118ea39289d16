// Tally: what `muster top` shows, counted as it happens and written to the job's counters now and then.
#pragma once

#include "api/shm/job_counters.hpp"
#include "daemon/engine/board.hpp"
#include "daemon/engine/session.hpp"
#include "scheduler/run/request.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    the counters' memory.
// Thread  under the engine's baton.
// Bound   a few additions a start; a pass over ranks and groups each kPeriod.
// Fails   create: NO_RESOURCE.
class Tally {
 public:
  static constexpr Nanos kPeriod = std::chrono::milliseconds(100);

  // The groups of the mesh, which come first among the job's.
  static Result<Tally> create(std::uint32_t world, std::span<const scheduler::Group> groups,
                              std::uint64_t epoch);
  int descriptor() const { return writer_.descriptor(); }

  // Each start is submitted once and retired once, whatever becomes of its client.
  void submitted(Rank rank, const scheduler::Plan& plan);
  void retired(Rank rank, const scheduler::Plan& plan, bool well, Nanos busy);

  // What a session counts itself.
  struct Counted {
    const Session* session = nullptr;  // none: the rank is not attached
    Nanos exposed{0};
  };
  bool due(Instant now) const { return now >= next_; }
  void write(std::span<const Counted> ranks, const Board* board, Instant now);

 private:
  struct RankState {
    std::uint64_t in_flight = 0;
  };
  struct GroupState {
    std::vector<Rank> members;
    std::uint64_t operations = 0, failures = 0, bytes = 0, busy = 0, in_flight = 0;
    std::uint64_t runs = 0, generation = 0, number = 0;
  };
  explicit Tally(shm::JobCountersWriter writer) : writer_(std::move(writer)) {}
  GroupState* group_of(const scheduler::Plan& plan);

  shm::JobCountersWriter writer_;
  std::vector<RankState> ranks_;
  std::vector<GroupState> groups_;
  Instant next_{0};
};

}  // namespace muster::engine
