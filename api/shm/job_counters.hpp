// An engine's counters of its job, in one memory file. A program with the read-only descriptor can read them
// at any time, also while the engine is stuck.
//
//   +-------------------------------------------+ 0
//   | JobCountersHeader                         |
//   | beat line: when the engine last wrote     |
//   +-------------------------------------------+ 2 lines
//   | RankTally[ranks of this node]             |
//   | GroupTally[groups]: the groups of the     |
//   |   mesh, then rows for groups made later   |
//   +-------------------------------------------+
//
// Rules as in layout.hpp: one writer, offsets not pointers, a reader copies and checks. A rank's counts only
// grow while it has one client, and begin again at 0 with the next. So a reader takes a smaller number for a
// new client. The row of a group that is gone goes to another group, with a new GroupCount::kRow.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/world.hpp"
#include "api/shm/revision.hpp"
#include "api/shm/segment.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::shm {

constexpr std::uint64_t kMagicJobCounters = 0x4d555354455243;  // "MUSTERC"
constexpr std::size_t kTallyValuesMax = 24;
constexpr std::size_t kTallyNameBytes = 64;

// Counters of a rank; the index is ABI: append only.
enum class RankCount : std::uint32_t {
  kAttached,         // 1 while it has a client
  kPid,              //
  kStepsCompleted,   // starts that finished well
  kStepsFailed,      //
  kBytesMoved,       // payload bytes of finished collectives, at this rank's target
  kComputeBusyNs,    //
  kCommBusyNs,       //
  kExposedNs,        // time the compute lane had work and waited for a collective
  kBufferBytes,      // of live buffers
  kRuns,             // collectives that it ran directly
  kRunBytes,         // their payload bytes
  kInFlight,         // starts without an outcome
  kLateIn,           // groups to whose collectives it comes late: api/base/blame/stragglers.hpp
  kLagNs,            // its median lag behind the first, in the group where it is worst
  kLagOthersNs,      // the median lag of that group's others, while it comes late there
  kLagGroup,         // that group's GroupCount::kId plus 1; 0: no lag is known
  kWholeBytes,       // of units that are whole. The client reports this and all later counters but kRank
  kPlaceBytes,       // of the memory for them
  kWholeBudget,      // 0: none
  kPrefetch,         // how many modules ahead its units are gathered
  kPrefetchAsked,    //
  kDemands,          // gathers that nobody had prefetched
  kPrefetchSkipped,  // for want of memory
  kRank,             // which rank of the job the row is of
  kCount
};
// Counters of a group; append only.
enum class GroupCount : std::uint32_t {
  kMembers,     // 0: the row is free
  kOperations,  // collectives that finished well on the engine path, counted once for all members
  kFailures,    // parts of collectives that failed
  kBytes,       // payload bytes, of all members
  kBusyNs,      // time with a collective running, of all members
  kInFlight,    // parts without an outcome
  kRuns,        // collectives run directly, counted once for all members
  kExposedNs,   // of its members, together
  kRow,         // a Revision: odd while the row changes hands
  kId,          // the group's number in the job
  kLate,        // messages of other nodes that were dropped, because their epoch had ended
  kBulkAhead,   // the most bytes of other operations that an urgent message to another node was sent after
  kSentBytes,   // of elements, that this node has sent to other nodes
  kCount
};
static_assert(static_cast<std::size_t>(RankCount::kCount) <= kTallyValuesMax);
static_assert(static_cast<std::size_t>(GroupCount::kCount) <= kTallyValuesMax);

struct JobCountersHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::int32_t engine_pid = 0;
  std::uint64_t bytes = 0;  // of the whole file
  std::uint32_t ranks = 0;
  std::uint32_t groups = 0;
  std::uint64_t epoch = 0;
};
struct alignas(kLineBytes) RankTally {
  std::uint64_t values[kTallyValuesMax] = {};
};
struct alignas(kLineBytes) GroupTally {
  std::uint64_t values[kTallyValuesMax] = {};
  char name[kTallyNameBytes] = {};  // zero-terminated; changes with the row's group
};
constexpr std::size_t kJobCountersBeatOffset = kLineBytes;
constexpr std::size_t kJobCountersTalliesOffset = 2 * kLineBytes;
constexpr std::uint64_t job_counters_bytes(std::uint32_t ranks, std::uint32_t groups) {
  return kJobCountersTalliesOffset + ranks * sizeof(RankTally) + groups * sizeof(GroupTally);
}

// The engine's side.
//
// Owns    the memory.
// Thread  one at a time.
// Bound   one store a value.
// Fails   create: NO_RESOURCE.
class JobCountersWriter {
 public:
  // `groups` has a name for each row; an empty name is a row for a later group.
  static Result<JobCountersWriter> create(const World& world, std::span<const std::string> groups,
                                          std::uint64_t epoch, const Headroom& headroom);
  int descriptor() const { return memory_.get(); }
  void set(std::uint32_t row, RankCount count, std::uint64_t value);
  void set(std::uint32_t group, GroupCount count, std::uint64_t value);
  // Gives the row to another group, with counts of 0, or to none.
  void give_row(std::uint32_t group, std::string_view name);
  // A reader that sees this beat sees all values that were set before it.
  void beat(Instant now);

 private:
  JobCountersWriter() = default;
  GroupTally* tally(std::uint32_t group);

  Descriptor memory_;
  Mapping mapping_;
  std::uint32_t ranks_ = 0;
  std::vector<RevisionWriter<>> rows_;
};

// The side of any other process. Works while the engine is stuck, or gone.
//
// Owns    a read-only mapping.
// Thread  a value.
// Bound   one load a value; kRowAttempts at a row.
// Fails   attach: PROTOCOL, VERSION, NO_RESOURCE.
class JobCountersReader {
 public:
  // A copy of one group's row.
  struct GroupRow {
    std::array<std::uint64_t, kTallyValuesMax> values{};
    std::string name;
    std::uint64_t value(GroupCount count) const { return values[static_cast<std::size_t>(count)]; }
  };

  static Result<JobCountersReader> attach(const Descriptor& memory);
  std::uint32_t ranks() const { return header_.ranks; }
  std::uint32_t groups() const { return header_.groups; }
  std::int32_t engine_pid() const { return header_.engine_pid; }
  std::uint64_t value(std::uint32_t row, RankCount count) const;
  // Nothing if the row is being given to another group at this moment.
  std::optional<GroupRow> row(std::uint32_t group) const;
  Instant beat() const;

 private:
  JobCountersReader(Mapping mapping, const JobCountersHeader& header)
      : mapping_(std::move(mapping)), header_(header) {}
  const GroupTally* tally(std::uint32_t group) const;
  Mapping mapping_;
  JobCountersHeader header_;  // a copy that was checked
};

}  // namespace muster::shm
