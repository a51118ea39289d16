// Graph: the starts in flight of all local ranks of a job, and what each waits for. A sans-IO core (decision
// D15): events come in by calls with the time passed along, what to do goes out through Actions. No clock,
// thread, socket or device inside.
//
// Order. A lane is a queue. Its next start is launched when the points it waits for are reached. A kernel may
// also be launched behind kernels of its own lane that are running, because the lane's stream keeps them in
// order. A collective is launched when nothing of its lane runs before it and all members have come
// (MatchQueue). What former clients of the rank have left running counts: it lies on the same streams.
//
// Failure (decision D18; the rule of a place is in epochs.hpp).
//   1. A failure stops the lane: its starts that are not launched are dropped, and what is submitted to it is
//      dropped at once, until the client resets it. What waits for them on other lanes of the rank fails by
//      DEPENDENCY.
//   2. A collective that is dropped ends its place, for the others would wait for it. They hear of the fault
//      at the root.
//   3. A reset moves the rank on where that lane failed or dropped something, and at every place that the
//      same fault has ended: of one fault a rank hears once.
#pragma once

#include "scheduler/run/absences.hpp"
#include "scheduler/run/rank_lanes.hpp"
#include "scheduler/run/step_table.hpp"
#include "scheduler/run/unsettled.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::scheduler {

struct GraphOptions {
  std::uint32_t ranks = 1;                  // local ranks of the job
  std::uint32_t lane_depth = 1024;          // starts waiting or running per lane
  std::uint32_t launch_depth = 8;           // kernels of one lane handed to its stream at a time
  std::uint32_t lanes = MUSTER_LANE_COUNT;  // of each rank
};

// Owns    the lanes of every rank, the match queue, the steps in flight, and who will not come.
// Thread  whoever holds the engine lock.
// Bound   lane_depth starts per lane; launch_depth steps of a rank's lane at once, over all its clients, of
//         which one is a collective at most.
// Fails   submit() refuses with kBusy when the lane is full; everything else is total.
class Graph {
 public:
  Graph(GraphOptions options, std::vector<Group> groups, Actions& actions);

  // ---- clients ---------------------------------------------------------------------------------
  // The rank has a client again: its lanes start empty at value 0 and its client timelines at 0.
  void attached(Rank rank);
  // The client left, in order or not; `text` says how. All places of its groups end. If a failure made it
  // leave, the others hear of that one's culprit, so that a chain of departures names the rank at its root:
  // one that has stopped a lane of it, or `heard`, which reached it on another way. Running work goes on to
  // its end.
  // Returns what the others hear; nullptr if the rank had no client.
  CausePtr detached(Rank rank, const std::string& text, Instant now, const CausePtr& heard = nullptr);
  // The launcher says that this rank will not come, or not come back once it has left. Collectives that need
  // it fail at once. Until it attaches after all, expect_all(), or nobody is attached.
  void absent(Rank rank, const std::string& text, Instant now);
  void expect_all();
  // The rank has been told of the fault on another way than by a lane.
  void heard(Rank rank, std::uint64_t fault);
  // A fault that ends places which the graph does not see: it gets the job's next number.
  CausePtr new_fault(Cause cause);

  // Starts of such a plan may come.
  void expect(const CollectiveWork& work) { matches_.expect(place_of(work, 0)); }

  // ---- events ----------------------------------------------------------------------------------
  // kBusy: the lane is full, offer it again later. kBadArgument: value is not the lane's next, or a wait is
  // for a timeline that does not exist. On kOk exactly one of reached or stopped covers it in the end.
  Code submit(const Request& request, Instant now);
  // Raise a client timeline. kBadArgument if it would go down.
  Code signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now);
  void reset_lane(Rank rank, std::uint32_t lane, Instant now);
  // The step has ended. `failed`: why it did not go well; its place ends, and its members' lanes stop there.
  void finished(std::uint32_t step_index, Instant now, const Status* failed = nullptr);
  // Ends all places of the group. Returns the cause.
  CausePtr abort(GroupId group, Cause cause, Instant now);
  // The rank does not wait for the next start of the lane, which fails for all its members. Nothing if there
  // is none.
  void give_up(Rank rank, std::uint32_t lane, Cause cause, Instant now);
  // Another group in the place of one that nobody uses any more, or yet. Empty: none.
  void set_group(GroupId group, Group now);
  void name_group(GroupId group, std::string name) { matches_.name_group(group, std::move(name)); }
  // Enforces the deadlines of starts that are next on their lane. What counts is how long nothing has moved
  // that such a start waits for. Call at least every 100 ms. A caller that comes later was held up itself,
  // and nobody is blamed for that time.
  void tick(Instant now);

  // ---- what others may ask ---------------------------------------------------------------------
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const RankLanes& lanes_of(Rank rank) const { return ranks_[rank.value]; }
  const Absences& absences() const { return absences_; }
  std::span<const Group> groups() const { return matches_.groups(); }
  const MatchQueue& matches() const { return matches_; }
  const StepTable& steps() const { return steps_; }

 private:
  void pump(Rank rank, Instant now);
  bool pump_lane(Rank rank, std::uint32_t lane, Instant now);
  bool arrive(Rank rank, std::uint32_t lane, Instant now);
  void launch(std::span<const MatchQueue::Arrival> members, Instant now);

  // Stops the lane before its next start, or where a launched one has failed: at that value. Nothing if it
  // has stopped there already.
  void stop_lane(Rank rank, std::uint32_t lane, const CausePtr& cause,
                 std::optional<std::uint64_t> failed_value = std::nullopt);
  void drop(Rank rank, std::uint32_t lane, const LaneQueue::Start& start);
  void settle(Instant now);

  GraphOptions options_;
  Actions& actions_;
  MatchQueue matches_;
  StepTable steps_;
  std::vector<RankLanes> ranks_;
  Absences absences_;
  Unsettled unsettled_;
  std::optional<Instant> last_tick_;
  std::uint64_t faults_ = 0;  // the latest
};

}  // namespace muster::scheduler
