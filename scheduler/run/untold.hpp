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
// Hearing of it does not excuse the starts that the member had submitted before: of SEND and RECV they may
// come on another lane, later, and belong to what the others have given up. So a failure is owed to starts up
// to a submission, of which the graph counts all: of a lineup to those before the member heard of it there,
// as its lane stands from then on; of pairs to those before it has got over it.
//
// Owns    the verdicts.
// Thread  one.
// Bound   one failure of each lost rank, and one of another kind; 8 bytes a member for each.
// Fails   never.
class Untold {
 public:
  static constexpr std::uint64_t kAll = UINT64_MAX;

  explicit Untold(std::size_t members) : members_(members) {}

  // Nobody has heard of it. Of a rank that was lost, came back and was lost again the later one counts; so it
  // does of those that are no loss. A failure that is known already stays as it is.
  void add(const Verdict& verdict, std::uint64_t now);
  // The failure has taken place here, and something else of its kind has not since.
  bool has(std::uint64_t event) const;
  // It has, and that start of the member is not owed it any more.
  bool settled(std::size_t member, std::uint64_t event, std::uint64_t submission) const;
  // Whether that start of the member is owed anything.
  bool any(std::size_t member, std::uint64_t submission) const;
  // What that start hears; the member has heard it then, for all starts after `now`. kAll: it has to hear
  // again.
  std::optional<Verdict> take(std::size_t member, std::uint64_t submission, std::uint64_t now);
  // It has heard of that failure on another way, for all starts after `now`; of all failures.
  void told(std::size_t member, std::uint64_t event, std::uint64_t now);
  void told_all(std::size_t member);

 private:
  struct Failure {
    Verdict verdict;
    std::uint64_t since = 0;  // submissions before it took place here
    // By member, to its starts up to that submission; kAll: it has not heard.
    std::vector<std::uint64_t> owed;
  };

  std::size_t members_;
  std::vector<Failure> failures_;  // oldest first
};

}  // namespace muster::scheduler
