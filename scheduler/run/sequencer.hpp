// Sequencer: the order that the ranks of a group agree on (decision D7).
//
// Each (group, lane) is a lineup. A member arrives with its next collective once nothing of its lane stands
// before it; when all have arrived the signatures are compared, what all share by one hash and what pairs
// share by its sum over all, and only then does anything move. SEND and RECV meet pairwise, across lanes.
//
// A failure takes everybody who waits at that meeting out of it: in the lineup, or of the pair. A member
// that was attached and did not wait hears of it when it next comes there: it gets the same verdict at once,
// never a late success. In a lineup it hears once; of pairs, to which it may come on every lane, with each
// start from before it has got over the failure. What a member is owed is void when it has heard of that
// failure elsewhere (acknowledge()), when it leaves, and when it attaches anew.
#pragma once

#include "scheduler/run/request.hpp"
#include "scheduler/run/untold.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace muster::scheduler {

struct Group {
  std::string name;
  std::vector<Rank> ranks;  // in group order
};

// Where the members of an operation come together, and which of them one is.
struct Meeting {
  GroupId group;
  std::uint32_t lane = 0;  // of a collective: it meets those of the same lane
  bool pair = false;       // of SEND and RECV, which meet on any lanes
  std::int32_t sender = -1;
  std::int32_t receiver = -1;
  std::int32_t index = 0;

  bool same_place(const Meeting& other) const {
    if (group != other.group || pair != other.pair) return false;
    return pair ? sender == other.sender && receiver == other.receiver : lane == other.lane;
  }
};
Meeting meeting_of(const CollectiveWork& work, std::uint32_t lane);

// Owns    the arrival state of every lineup.
// Thread  whoever holds the engine's baton.
// Bound   groups × lanes lineups, made at construction (places of groups that come later are empty until
//         then); one arrival per rank and lane. Of pairs only those that have failed.
// Fails   never: a disagreement is a verdict for all members.
class Sequencer {
 public:
  explicit Sequencer(std::vector<Group> groups);
  // Another group in the place of one that nobody uses: no operation of it is in flight. Empty: none.
  void set_group(GroupId group, Group now);

  struct Arrival {
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    Plan* plan = nullptr;
    Instant at{0};                 // for reports
    std::uint64_t submission = 0;  // of the start: next_submission()
  };
  struct Outcome {
    enum class Kind : std::uint8_t { kWait, kGo, kRefuse, kDisagree };
    Kind kind = Kind::kWait;
    // kGo: all, in group order; kDisagree: all that had arrived. Valid until the next call of arrive().
    std::span<const Arrival> members;
    Verdict verdict;  // kRefuse: for this member alone; kDisagree: for all of `members`
  };

  // The number of the next start that is submitted, from 1; of the latest one.
  std::uint64_t next_submission() { return ++submissions_; }
  std::uint64_t submissions() const { return submissions_; }

  // A member's next collective. kRefuse: it was owed a verdict there.
  Outcome arrive(const Arrival& arrival);

  // Takes everybody who waits at the meeting out of it; its other members hear of the verdict when they come.
  std::vector<Arrival> break_up(const Meeting& meeting, const Verdict& verdict);
  // The same for all lineups and pairs of the group.
  std::vector<Arrival> break_group(GroupId group, const Verdict& verdict);
  // Whether the failure would be news there: it has not taken place there yet, and the start that has fallen
  // was owed nothing, so that others may wait for it.
  bool is_news(const Meeting& meeting, std::uint64_t event, std::uint64_t submission) const;
  // Whether the failure is over there for that start: its rank, and perhaps others, have gone on since.
  bool is_over(const Meeting& meeting, std::uint64_t event, std::uint64_t submission) const;
  // Takes one arrival back.
  void withdraw(const Arrival& arrival);

  // Whether that start of the member is owed anything there.
  bool owes(const Meeting& meeting, std::uint64_t submission) const;
  // The member has heard of that failure elsewhere, for all starts after `since`.
  void acknowledge(const Meeting& meeting, std::uint64_t event, std::uint64_t since);
  // The same wherever the rank is a member.
  void acknowledge(Rank rank, std::uint64_t event, std::uint64_t since);
  // The rank is owed nothing at all.
  void forget_owed(Rank rank);

  // Members of the group that have not arrived in the lineup, as world ranks.
  std::vector<Rank> missing(GroupId group, std::uint32_t lane) const;
  // How many operations of the lineup are over or running: agreed on by all members, or broken off.
  std::uint64_t operations(GroupId group, std::uint32_t lane) const { return lineup(group, lane).operations; }
  // An operation that some members have arrived at and others not.
  struct Pending {
    GroupId group;
    std::uint32_t lane = 0;
    std::uint64_t number = 0;  // in its lineup, from 1; of a SEND or RECV, which has no lineup: its point
    std::vector<Arrival> arrived;
    std::vector<Rank> missing;
  };
  std::vector<Pending> pending() const;
  std::span<const Group> groups() const { return groups_; }

 private:
  struct Lineup {
    explicit Lineup(std::size_t members = 0) : arrived(members), untold(members) {}
    std::vector<std::optional<Arrival>> arrived;  // by index in the group
    std::uint32_t arrived_count = 0;
    std::uint64_t operations = 0;
    Untold untold;  // by index in the group
  };
  using Pair = std::tuple<std::uint32_t, std::int32_t, std::int32_t>;  // group, sender, receiver

  Lineup& lineup(GroupId group, std::uint32_t lane) {
    return lineups_[group.value * MUSTER_LANE_COUNT + lane];
  }
  const Lineup& lineup(GroupId group, std::uint32_t lane) const {
    return lineups_[group.value * MUSTER_LANE_COUNT + lane];
  }
  void open_lineups(GroupId group);
  template<class Body>
  void for_each_place(Rank rank, Body body);
  std::vector<Arrival> take_waiting(GroupId group, std::uint32_t lane);
  std::vector<Arrival> take_pairs(const std::function<bool(const Meeting&)>& ours);
  std::optional<Verdict> take_untold_of_pair(const Meeting& meeting, std::uint64_t submission);
  Outcome arrive_pair(const Arrival& arrival);
  // The other side of a SEND or RECV.
  Rank partner_of(const Arrival& arrival) const;
  Outcome complete(Lineup& lineup, const Group& group);
  // Everybody is there: a disagreement, unless they agree.
  void settle(Outcome& outcome, const Group& group) const;

  std::uint64_t submissions_ = 0;
  std::vector<Group> groups_;
  std::vector<Lineup> lineups_;
  std::vector<Untold> group_pairs_;      // by group: failures of all its pairs, by index in the group
  std::map<Pair, Untold> pairs_untold_;  // failures of one pair: of its sender, 0, and its receiver, 1
  std::vector<Arrival> pairs_;           // SEND and RECV that wait for their partner, oldest first
  std::vector<Arrival> members_;         // of the latest outcome: kept, so that an arrival needs no heap
};

}  // namespace muster::scheduler
