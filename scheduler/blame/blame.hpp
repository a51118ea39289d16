// Who is to blame when an operation does not complete: a pure function of a Snapshot.
//
// Not by majority: of 32 ranks 30 may be stuck and the two that are ahead be right. The search begins at the
// oldest operation that is incomplete, or at the one that is asked about, and goes from each member that has
// not come to the operation in which that one waits itself, until it comes to ranks that wait for nobody, or
// back to where it has been.
#pragma once

#include "scheduler/blame/snapshot.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::blame {

enum class Diagnosis : std::uint8_t {
  kHealthy,          // no operation is older than the snapshot's patience, and every process can go on
  kSlow,             // all have come; the operation runs
  kNotJoined,        // a member runs, and has not come
  kNotAttached,      // a member has no process in the job
  kMismatchPending,  // members of one group are in different operations: it fails, or hangs, once they meet
  kDeadlock,         // a circle of operations, each waiting for a member that waits in the next
  kFrozen,
  kStopped,
  kDead,
};
const char* diagnosis_name(Diagnosis diagnosis) noexcept;  // "not_joined"

enum class Confidence : std::uint8_t { kLow, kMedium, kHigh };
const char* confidence_name(Confidence confidence) noexcept;

struct Culprit {
  std::uint32_t rank = 0;
  Diagnosis diagnosis = Diagnosis::kNotJoined;
  std::string reason;  // what its own start waits for, if it has submitted one
};

// One step of a circle: `rank` waits in `wait` for `waits_for`, which waits in the next step's.
struct Link {
  std::uint32_t rank = 0;
  std::size_t wait = 0;
  std::uint32_t waits_for = 0;
  bool certain = false;  // that one's part stands behind the next wait, or its caller sits in it
};

struct Report {
  Diagnosis diagnosis = Diagnosis::kHealthy;
  Confidence confidence = Confidence::kHigh;
  std::optional<std::size_t> wait;  // the oldest incomplete operation on the way to the cause
  std::vector<Culprit> culprits;    // by rank
  std::vector<Link> circle;         // kDeadlock, kMismatchPending
  std::vector<std::string> ruled_out;
  std::vector<std::string> next;  // commands to type
};

// `about`: the wait whose deadline has passed, which is then looked at whatever its age. Without it, and
// where nothing waits for long, processes that are stopped, frozen or dead between two operations are named.
Report assess(const Snapshot& snapshot, std::optional<std::size_t> about = std::nullopt);

// The cause in one clause, to stand behind a deadline's diagnosis; empty if there is nothing to add to the
// missing ranks. What matters most comes first, so that it may be cut.
std::string because(const Snapshot& snapshot, const Report& report);
// As `muster hang` prints it.
std::string text_of(const Snapshot& snapshot, const Report& report);

}  // namespace muster::blame
