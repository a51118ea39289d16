// Snapshot: who of a job waits for whom, and what each rank's process does, at one moment. Plain values: who
// gathers them has copied and checked them.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/path.hpp"
#include "scheduler/blame/stragglers.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::blame {

enum class ProcessState : std::uint8_t {
  kUnknown,  // not looked at, or not to be seen
  kRunning,
  kStopped,  // by a signal or a debugger
  kFrozen,   // its cgroup is
  kDead,
};
const char* process_state_name(ProcessState state) noexcept;  // "stopped"

// One operation, in the words of its users.
struct Operation {
  std::string label;  // "all_reduce"
  std::uint64_t bytes = 0;
  std::string dtype;  // "bf16"; empty: it has none
  std::string site;   // where in the program; empty: nobody said
};

// The latest operation that a rank has finished.
struct LastOperation {
  std::string group;
  std::string label;
  Path path = Path::kEngine;
  std::uint64_t number = 0;
  Instant at{0};
};

// How late a rank comes in the group where it is worst; the histogram is of that group.
struct Lag {
  Straggler figures;
  Stragglers::Histogram histogram{};
};

struct RankState {
  bool attached = false;
  std::int32_t pid = 0;
  ProcessState process = ProcessState::kUnknown;
  std::string where;             // kFrozen: the cgroup
  std::optional<Instant> heard;  // its last sign of life
  std::optional<LastOperation> finished;
  std::optional<Lag> lag;
};

struct Arrived {
  std::uint32_t rank = 0;
  Instant at{0};
};

// A member that has not come to an operation.
struct Missing {
  std::uint32_t rank = 0;
  // It has submitted its part, which stands behind another operation: index of that wait. Without it the rank
  // has not submitted anything, or what holds it back is no wait for others.
  std::optional<std::size_t> behind;
  std::string reason;  // what holds a submitted part back, if it is no wait; empty: it has submitted nothing
};

// An operation of a group that has begun and is not over.
struct Wait {
  std::uint32_t group = 0;
  std::string group_name;
  std::size_t members = 0;  // of the group
  Path path = Path::kEngine;
  std::string lane;          // kEngine: "small"
  std::uint64_t number = 0;  // in the order that the group agrees on
  Operation operation;
  Instant since{0};  // its first member came
  std::vector<Arrived> arrived;
  std::vector<Missing> missing;       // empty: all have come, and the operation runs
  std::vector<std::uint32_t> inside;  // kDirect, all have come: who has not finished its part
  // kDirect, all have come: who has finished its part, and does nothing else until those inside have read
  // what it gave them.
  std::vector<std::uint32_t> awaiting;
  std::string difference;  // in what those who have arrived differ already; empty: in nothing
};

struct Snapshot {
  std::string job;
  Instant now{0};
  Nanos patience{0};  // younger waits are nobody's fault
  std::vector<RankState> ranks;
  std::vector<Wait> waits;
  std::vector<Straggler> stragglers;
};

}  // namespace muster::blame
