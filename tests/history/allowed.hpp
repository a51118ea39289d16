// Allowed: the failures that a member may get, as a sequential model of the rule in muster.h (Failure) and of
// decision D18. It knows the operations begun, their places and times, and the faults: no epoch, position or
// queue.
//
//   1. A fault strikes places: a loss all places of the lost rank's groups; an abort those of its group; an
//      interrupt the runs of its group; a deadline or a mismatch a place of the group that its text names.
//   2. An operation begun at a struck place, and not over, may fail by the fault. A failed start stops its
//      lane.
//   3. An operation on a stopped lane may fail by the fault. So may, on its own lane, an operation that waits
//      for such a start. Their places are struck as well.
//   4. A member that attached after the fault may get it only from a start that was dropped later.
//   5. A loss is reported with the text that had stopped a lane of the lost rank, if any, else with its own.
//      It may also have the text that the engine sent to a run of that rank, which died before the run
//      returned. The code is always PEER_LOST.
//   6. Runs of a group get one fault once; a lane gets it once, and once more for each other lane.
//   7. A deadline passes only where an operation was under way for that long; it may still end well in that
//      moment. A mismatch occurs only where members were at different operations.
#pragma once

#include "api/base/clock.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <muster/muster.h>

namespace muster::test {

using Turn = std::uint64_t;
inline constexpr Turn kNever = UINT64_MAX;
inline constexpr std::uint32_t kNoLane = UINT32_MAX;
inline constexpr std::uint32_t kHistoryLanes = 5;  // by what meets, whatever numbers sessions give them

struct HistoryGroup {
  std::string name;
  std::vector<std::uint32_t> ranks;
  std::int32_t index_of(std::uint32_t rank) const;  // -1: no member
};

// Where operations match.
struct MeetingPlace {
  enum class Kind : std::uint8_t { kRuns, kLane, kPair };
  Kind kind = Kind::kRuns;
  std::uint32_t group = 0;
  std::uint32_t first = 0;   // the lane; the sender's index
  std::uint32_t second = 0;  // the receiver's
  auto operator<=>(const MeetingPlace&) const = default;
};

// One start or run, as its member made it.
struct Attempt {
  std::uint32_t rank = 0;
  std::uint32_t life = 0;  // which client of the rank
  std::size_t step = 0;
  bool wrong = false;  // another operation in the step's place
  MeetingPlace place;
  std::uint32_t lane = kNoLane;  // kNoLane: it is run
  std::uint32_t stops = 0;       // of the lane before it
  std::vector<std::size_t> waits;
  Instant begun_at{0};
  Turn begun = 0;
  Turn over = kNever;
  Instant over_at = Instant::max();
  bool well = false;
};

struct Struck {
  muster_status_t code = 0;
  std::set<std::string> texts;
  std::vector<std::uint32_t> groups;
  bool runs = true;
  bool starts = true;
  Turn earliest = 0;
  Turn latest = kNever;
  bool in_a_run = false;  // a loss of a rank that was in a run, and may have been told more than is known
};

// Owns    the operations begun, and the faults.
// Thread  one.
// Bound   one history.
// Fails   never: hears() returns a text for a failure that is not allowed.
class Allowed {
 public:
  Allowed(std::vector<HistoryGroup> groups, Nanos deadline)
      : groups_(std::move(groups)), deadline_(deadline) {}

  const HistoryGroup& group(std::uint32_t id) const { return groups_[id]; }
  void set_group(std::uint32_t id, HistoryGroup group) { groups_[id] = std::move(group); }
  const Attempt& attempt(std::size_t id) const { return attempts_[id]; }
  std::size_t attempts() const { return attempts_.size(); }

  void attached(std::uint32_t rank, std::uint32_t life, Turn turn) { attached_[{rank, life}] = turn; }
  std::size_t begun(Attempt attempt);
  void waits_for(std::size_t attempt, std::size_t before) { attempts_[attempt].waits.push_back(before); }
  void over(std::size_t attempt, bool well, Instant now, Turn turn);
  // All that the client had begun ends.
  void gone(std::uint32_t rank, std::uint32_t life, Turn turn);
  // The words of faults that reach runs of the client that are not over.
  std::set<std::string> words_for_runs(std::uint32_t rank, std::uint32_t life) const;
  bool is_in_a_run(std::uint32_t rank, std::uint32_t life) const;
  std::size_t strikes(Struck fault);
  // The fault has struck by now.
  void has_struck(std::size_t fault, Turn turn) { faults_[fault].latest = turn; }
  // The attempt fails. Empty: that is allowed.
  std::string hears(std::size_t attempt, muster_status_t code, const std::string& text, Instant now,
                    Turn turn);

 private:
  using Lane = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // rank, life, lane
  struct Reach {
    std::set<MeetingPlace> places;
    std::set<Lane> lanes;
  };
  static Lane lane_of(const Attempt& a) { return {a.rank, a.life, a.lane}; }
  static bool strikes_at(const Struck& fault, const MeetingPlace& place);
  Reach reach(const Struck& fault) const;
  bool reaches(const Struck& fault, const Attempt& heard) const;
  bool learn(const Attempt& heard, muster_status_t code, const std::string& text, Instant now, Turn turn);
  bool was_due(std::uint32_t group, Instant now) const;
  bool were_apart(std::uint32_t group) const;
  std::size_t candidates(const Attempt& heard, muster_status_t code, const std::string& text) const;
  std::string counted(const Attempt& heard, const std::string& what, std::size_t candidates);

  std::vector<HistoryGroup> groups_;
  Nanos deadline_;
  std::vector<Attempt> attempts_;
  std::vector<Struck> faults_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Turn> attached_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::string>, std::size_t> heard_of_runs_;
  std::map<std::tuple<Lane, std::string>, std::set<std::uint32_t>> heard_of_lanes_;  // by which stops
};

}  // namespace muster::test
