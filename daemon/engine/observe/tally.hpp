// Tally: counts the figures of `muster top`, and writes them to the job's counters now and then.
#pragma once

#include "api/shm/job_counters.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/memory/memory_account.hpp"
#include "daemon/engine/observe/straggler_statistics.hpp"
#include "daemon/engine/session/session.hpp"
#include "scheduler/run/request.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the counters' memory.
// Thread  under the engine's lock.
// Bound   a few additions a start. Each kPeriod a pass over ranks and groups, with kRecordsALook records of
//         ranks that have run direct operations. kMadeRowsMax rows for made groups; if all are taken, a
//         further group is not counted.
// Fails   create: NO_RESOURCE.
class Tally {
 public:
  static constexpr Nanos kPeriod = std::chrono::milliseconds(100);

  static constexpr std::uint32_t kMadeRowsMax = 256;
  static constexpr std::uint32_t kRecordsALook = 4096;

  // The groups of the mesh come first among the job's; `first_made` is the first place of a made group.
  struct Places {
    std::uint32_t first_made = 0;
    std::uint32_t made_max = 0;
  };
  static Result<Tally> create(const World& world, std::span<const scheduler::Group> groups, Places places,
                              std::uint64_t epoch, const std::shared_ptr<MemoryAccount>& account = nullptr);
  int descriptor() const { return writer_.descriptor(); }

  // A group has been made in that place; without ranks: it is gone. The former group has no start in flight.
  void set_group(GroupId group, const scheduler::Group& now);
  // Renames the group. Its numbers go on in another row, so that a reader does not mix up the names.
  void name_group(GroupId group, std::string_view name);

  // The traffic that the group's communicator has counted so far.
  void set_traffic(GroupId group, transport::Communicator::Traffic traffic);

  // Each start is submitted once and retired once, whatever becomes of its client.
  void submitted(Rank rank, const scheduler::Plan& plan);
  void retired(Rank rank, const scheduler::Plan& plan, bool well, Nanos busy);

  // A session's own counts.
  struct Counted {
    const Session* session = nullptr;  // none: the rank is not attached
    Nanos exposed{0};
  };
  bool due(Instant now) const { return now >= next_; }
  // `ranks`: by LocalRank.
  void write(std::span<const Counted> ranks, const DirectPages* direct_pages,
             const StragglerStatistics& stragglers, Instant now);

 private:
  struct RankState {
    std::uint64_t in_flight = 0;
    std::uint64_t run_bytes = 0;  // of its direct operations, as far as they have been shared out to groups
    std::uint64_t read = 0;       // its records up to this index have been counted
  };
  struct GroupState {
    GroupId id;
    std::vector<Rank> members;  // empty: the row is free
    std::uint64_t operations = 0, failures = 0, bytes = 0, busy = 0, in_flight = 0;
    std::uint64_t runs = 0, epoch = 0, number = 0;
    transport::Communicator::Traffic traffic;
  };
  Tally(const World& world, shm::JobCountersWriter writer, MemoryCharge charge)
      : charge_(std::move(charge)), writer_(std::move(writer)), ranks_(world) {}
  std::optional<std::uint32_t> row_of(GroupId group) const;
  GroupState* group_of(const scheduler::Plan& plan);
  void share_out_runs(Rank rank, const DirectPages& direct_pages);
  void write_rank(Rank rank, const Counted& counted, const DirectPages* direct_pages,
                  const StragglerStatistics& stragglers);
  void write_group(std::uint32_t row, std::span<const Counted> ranks, const DirectPages* direct_pages);

  MemoryCharge charge_;
  shm::JobCountersWriter writer_;
  RankTable<RankState> ranks_;
  std::vector<GroupState> groups_;  // by row: those of the mesh, then those made later
  std::uint32_t mesh_groups_ = 0;
  std::uint32_t first_made_ = 0;
  std::vector<std::optional<std::uint32_t>> made_rows_;  // by place of a made group
  std::vector<std::uint64_t> seen_;                      // by row: bytes in the records of one look
  Instant next_{0};
};

}  // namespace muster::engine
