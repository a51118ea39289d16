// Untold: the failures of a place where members meet, and who of them is still to hear of each.
#pragma once

#include "scheduler/run/request.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster::scheduler {

// Who has missed several failures hears of each lost member in turn, and of nothing else beside them: an
// abort is how others got away from the loss.
//
// Owns    the verdicts.
// Thread  one.
// Bound   one failure of each lost rank, and one of another kind.
// Fails   never.
class Untold {
 public:
  explicit Untold(std::size_t members) : members_(members) {}

  // Nobody has heard of it. Of a rank that was lost, came back and was lost again the later one counts; so it
  // does of those that are no loss. A failure that is known already stays as it is.
  void add(const Verdict& verdict);
  // The failure has taken place here, and something else of its kind has not since.
  bool has(std::uint64_t event) const;
  bool any(std::size_t member) const;
  // What the member hears next; it has heard it then.
  std::optional<Verdict> take(std::size_t member);
  // It has heard of that failure on another way; of all failures.
  void told(std::size_t member, std::uint64_t event);
  void told_all(std::size_t member);

 private:
  struct Failure {
    Verdict verdict;
    std::vector<bool> told;  // by member
  };
  void tell(Failure& failure, std::size_t member);

  std::size_t members_;
  std::vector<Failure> failures_;  // oldest first
};

}  // namespace muster::scheduler
