// Sequencer: the order that the ranks of a group agree on (decision D7).
//
// Each (group, lane) is a channel. A member arrives with its next collective once nothing of its lane stands
// before it; when all have arrived the signatures are compared, what all share by one hash and what pairs
// share by its sum over all, and only then does anything move. SEND and RECV meet pairwise, across lanes.
//
// A failure takes everybody who waits in the channel out of it. A member that was attached and did not wait
// hears of it when it next comes, once: it gets the same verdict at once, never a late success. Who has
// missed several hears of each lost member in turn, and of nothing else beside them: an abort is how others
// got away from the loss. What a member is owed is void when it resets a lane that this failure stopped, when
// it leaves, and when it attaches anew.
#pragma once

#include "scheduler/run/request.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::scheduler {

struct Group {
  std::string name;
  std::vector<Rank> ranks;  // in group order
};

// Owns    the arrival state of every channel.
// Thread  whoever holds the engine's baton.
// Bound   groups × lanes channels, made at construction (places of groups that come later are empty until
//         then); one arrival per rank and lane.
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
    Instant at{0};  // for reports
  };
  struct Outcome {
    enum class Kind : std::uint8_t { kWait, kGo, kRefuse, kDisagree };
    Kind kind = Kind::kWait;
    // kGo: all, in group order; kDisagree: all that had arrived. Valid until the next call of arrive().
    std::span<const Arrival> members;
    Verdict verdict;  // kRefuse: for this member alone; kDisagree: for all of `members`
  };

  // A member's next collective. kRefuse: it was owed a verdict of this channel.
  Outcome arrive(const Arrival& arrival);

  // Takes everybody who waits in the channel of (group, lane) out of it; the other members hear of the
  // verdict when they come.
  std::vector<Arrival> break_channel(GroupId group, std::uint32_t lane, const Verdict& verdict);
  // Takes out the sends and receives that wait for `rank`.
  std::vector<Arrival> waiting_for(Rank rank);
  // Takes one arrival back.
  void withdraw(const Arrival& arrival);

  // The rank knows of all failures up to `event`, wherever it has not heard of them yet.
  void acknowledge(Rank rank, std::uint64_t event);

  // Members of the group that have not arrived in the channel, as world ranks.
  std::vector<Rank> missing(GroupId group, std::uint32_t lane) const;
  // How many operations of the channel are over or running: agreed on by all members, or broken off.
  std::uint64_t operations(GroupId group, std::uint32_t lane) const {
    return channel(group, lane).operations;
  }
  // An operation that some members have arrived at and others not.
  struct Pending {
    GroupId group;
    std::uint32_t lane = 0;
    std::uint64_t number = 0;  // in its channel, from 1; of a SEND or RECV, which has no channel: its point
    std::vector<Arrival> arrived;
    std::vector<Rank> missing;
  };
  std::vector<Pending> pending() const;
  std::span<const Group> groups() const { return groups_; }

 private:
  struct Channel {
    std::vector<std::optional<Arrival>> arrived;  // by index in the group
    std::uint32_t arrived_count = 0;
    std::uint64_t operations = 0;
    std::vector<Verdict> failures;     // oldest first: losses, one a lost rank, and one of another kind
    std::vector<std::uint64_t> heard;  // by index in the group: event of the latest failure it knows of
  };

  Channel& channel(GroupId group, std::uint32_t lane) {
    return channels_[group.value * MUSTER_LANE_COUNT + lane];
  }
  const Channel& channel(GroupId group, std::uint32_t lane) const {
    return channels_[group.value * MUSTER_LANE_COUNT + lane];
  }
  void open_channels(GroupId group);
  std::vector<Arrival> take_waiting(GroupId group, std::uint32_t lane);
  static void fail(Channel& channel, const Verdict& verdict);
  // What the member has not heard yet and hears next.
  static std::optional<Verdict> take_untold(Channel& channel, std::size_t member);
  Outcome arrive_pair(const Arrival& arrival);
  // The other side of a SEND or RECV.
  Rank partner_of(const Arrival& arrival) const;
  Outcome complete(Channel& channel, const Group& group);
  // Everybody is there: a disagreement, unless they agree.
  void settle(Outcome& outcome, const Group& group) const;

  std::vector<Group> groups_;
  std::vector<Channel> channels_;
  std::vector<Arrival> pairs_;    // SEND and RECV that wait for their partner, oldest first
  std::vector<Arrival> members_;  // of the latest outcome: kept, so that an arrival needs no heap
};

}  // namespace muster::scheduler
