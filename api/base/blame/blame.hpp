// Names the culprits when an operation does not complete: a pure function of a Snapshot.
//
// A majority vote would be wrong: 30 of 32 ranks may be stuck while the two that are ahead are right. So the
// search begins at the oldest incomplete operation, or at the one in question. From each missing member it
// goes on to the operation in which that member waits. It stops at ranks that wait for nobody, or when it
// closes a circle.
#pragma once

#include "api/base/blame/snapshot.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::blame {

struct Report {
  enum class Diagnosis : std::uint8_t {
    kHealthy,          // no operation is older than the snapshot's patience, and every process can go on
    kSlow,             // all members have arrived; the operation runs
    kUnknown,          // nothing is known of a missing member: its node has not answered
    kNotJoined,        // the process of a missing member runs
    kNotAttached,      // a missing member has no process in the job
    kMismatchPending,  // members of one group are in different operations, which will fail or hang
    // A circle of operations: each waits for a member that waits in the next. So is one within a group, if
    // every part is submitted, behind another: the operations fit each other, and their order does not.
    kDeadlock,
    kFrozen,
    kStopped,
    kDead,
  };

  enum class Confidence : std::uint8_t { kLow, kMedium, kHigh };

  struct Culprit {
    std::uint32_t rank = 0;
    Diagnosis diagnosis = Diagnosis::kNotJoined;
    std::string reason;  // what the rank's own start waits for; empty: the rank has submitted none
  };

  // One step of a circle: `rank` waits in `wait` for `waits_for`, which waits in the `wait` of the next step.
  struct Link {
    std::uint32_t rank = 0;
    std::size_t wait = 0;
    std::uint32_t waits_for = 0;
    bool certain = false;  // `waits_for` has its part queued behind the next wait, or its caller blocks in it
    std::string stands = {};  // where that part stands, as Wait::Missing::stands; empty: it is not submitted
  };

  Diagnosis diagnosis = Diagnosis::kHealthy;
  Confidence confidence = Confidence::kHigh;
  std::optional<std::size_t> wait;  // the oldest incomplete operation on the way to the cause
  std::vector<Culprit> culprits;    // by rank
  std::vector<Link> circle;         // kDeadlock, kMismatchPending
  std::vector<std::string> ruled_out;
  std::vector<std::string> next;  // commands to type
};
const char* diagnosis_name(Report::Diagnosis diagnosis) noexcept;  // "not_joined"
const char* confidence_name(Report::Confidence confidence) noexcept;

// `about`: index of the wait whose deadline has passed; the search starts there, whatever the wait's age.
// Without it the search starts at waits older than the snapshot's patience. If there are none, the report
// names processes that are stopped, frozen or dead between two operations.
Report assess(const Snapshot& snapshot, std::optional<std::size_t> about = std::nullopt);

// The cause in one clause, which a deadline's message ends with; empty if there is nothing to add to the
// missing ranks. The most important words come first, because a caller may cut the end.
std::string because(const Snapshot& snapshot, const Report& report);
// The report as `muster hang` prints it.
std::string text_of(const Snapshot& snapshot, const Report& report);

}  // namespace muster::blame
