// DirectRecords: reads the reports of ranks on their direct operations: their progress, and their records of
// past operations.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/engine/direct/direct_segments.hpp"
#include "daemon/engine/direct/group_epochs.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace muster::engine {

// The wait of a member of a group, as its client reports it. It is a checked copy.
struct DirectQuestion {
  GroupId group;
  std::uint32_t index = 0;  // of the member that asks
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t phase = 0;
  shm::DirectWait kind = shm::DirectWait::kArrivals;
  std::uint32_t peer = 0;
};

// Owns    nothing.
// Thread  under the engine's lock.
// Bound   kDirectRecords records a rank.
// Fails   never. Values of clients are checked to be possible. They decide whether runs of their job are
//         overdue, and how reports describe these.
class DirectRecords {
 public:
  DirectRecords(const DirectSegments& segments, const GroupEpochs& epochs)
      : segments_(segments), epochs_(epochs) {}

  // The members that the question waits for, by index.
  std::vector<std::uint32_t> missing(const DirectQuestion& question) const;
  // The plan handle with which a member takes part in the operation; 0 if it does not.
  std::uint64_t plan_of(const DirectQuestion& question, std::uint32_t index) const;

  // An operation that a rank has run or runs, as the rank itself reports it.
  struct Flight {
    std::uint64_t index = 0;  // among the rank's operations
    GroupId group;
    std::uint32_t member = 0;  // this rank's index in the group
    shm::RecordedWhat what;    // without kRecordUneven
    bool uneven = false;
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;  // in its epoch, from 1
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
    Instant begun{0};
    shm::DirectRecord::State state = shm::DirectRecord::State::kOpen;
    std::optional<Instant> ended;
  };
  std::optional<Flight> latest_flight(Rank rank) const;
  // The rank's operation with that index, if its record is still there.
  std::optional<Flight> flight(Rank rank, std::uint64_t index) const;
  // The operation whose readers the rank waits for before it does anything else, if there is one.
  std::optional<Flight> awaited_flight(Rank rank) const;
  // All records with an index above `after`, oldest first; *lost counts those that were overwritten.
  std::vector<Flight> flights(Rank rank, std::uint64_t after = 0, std::uint64_t* lost = nullptr) const;
  std::uint64_t recorded(Rank rank) const;
  // The rank's own counters.
  struct Counted {
    std::uint64_t operations = 0;
    std::uint64_t bytes_moved = 0;
  };
  Counted counted(Rank rank) const;
  // The progress of the group in its present epoch, by its first member.
  struct Progress {
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
  };
  Progress progress(GroupId group) const;
  // The rank's client has given plans new counts that the engine does not know yet.
  bool untold(Rank rank) const;

 private:
  const DirectSegments& segments_;
  const GroupEpochs& epochs_;
};

}  // namespace muster::engine
