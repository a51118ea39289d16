// Graph: the starts in flight of all local ranks of a job, and what each start waits for. It is a sans-IO
// core (decision D15): events come in as calls with the time, and Actions carry out what the graph decides.
// It holds no clock, thread, socket or device.
//
// Order. A lane is a queue. Its next start is launched when the points it waits for are reached. A kernel may
// also be launched behind running kernels of its own lane, because the lane's stream keeps them in order. A
// collective is launched when all members have arrived (MatchQueue) and nothing runs on its lane; an EXCHANGE
// by neighbours in steps, as its members meet. Work that former clients of the rank left
// running counts too, because it lies on the same streams.
//
// Stream waits. With Options::stream_waits a start need not wait until a point of its rank is reached,
// if the step that reaches it is launched: it is launched behind that step (Step::after), and its stream
// waits. Both steps run on the device's streams alone, so neither is a collective between nodes.
//
// Failure (decision D18; the rule of a place is in epochs.hpp).
//   1. A failure stops the lane. Its starts that are not launched are dropped, and so is every further start
//      until the client resets the lane. Starts on other lanes that wait for a dropped one fail with
//      DEPENDENCY.
//   2. A dropped collective ends its place, because the other members would wait for it. They get the fault
//      at the root.
//   3. A reset moves the rank on at places where that lane failed or dropped a start, and at every place that
//      the same fault has ended. So a rank gets one fault once. In a group that spans nodes it moves on
//      only for a fault that has ended the rank's epoch or a later one, and at all places of the group alike.
//   4. A launched collective that goes on outside the workers may pass its deadline, or a member of it may be
//      interrupted. Its place ends and its members get that error at once. Until it is over, its memory is in
//      quarantine (decision D20).
//   5. A step that was launched behind a failed one, or behind one that was given up, is given up too, a
//      collective for all its members. Those that waited for it hear DEPENDENCY, the others the root.
#pragma once

#include "api/base/world.hpp"
#include "scheduler/run/absences.hpp"
#include "scheduler/run/open_lanes.hpp"
#include "scheduler/run/rank_lanes.hpp"
#include "scheduler/run/step_table.hpp"
#include "scheduler/run/work_list.hpp"
#include "transport/collective/job_links.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::scheduler {

// Owns    the lanes of every rank, the match queue, the steps in flight, and the absences.
// Thread  the one that holds the engine lock.
// Bound   shm::kLanesMax lanes per rank, lane_depth starts per lane. launch_depth steps in flight per lane,
//         those of former clients included; at most one of them is a collective.
// Fails   submit() with kBusy when the lane is full; submit() and signal() with kBadArgument.
class Graph {
 public:
  struct Options {
    World world;                                // the job's ranks; those of this node have lanes here
    std::uint32_t lane_depth = 1024;            // starts waiting or running per lane
    std::uint32_t launch_depth = 8;             // kernels of one lane handed to its stream at a time
    std::uint32_t lanes = MUSTER_LANE_CLASSES;  // with which each rank begins
    bool stream_waits = false;                  // Device::Info::stream_waits of the ranks' devices
  };

  // The graph's decisions; the engine carries them out in order.
  //
  // Owns    nothing. Thread  the caller of the graph.
  // Bound   each call is short and must not change the graph.
  // Fails   never: a device's failure is reported to finished().
  class Actions {
   public:
    virtual ~Actions() = default;
    // Enqueue the step; report it to finished() with its index once its work is done. It lives until
    // then. Report it after those that it was launched behind (Step::after).
    virtual void launch(std::uint32_t step_index, const Step& step) = 0;
    // The lane's timeline reached `value`, by a step with this key (Step::key).
    virtual void reached(Rank rank, std::uint32_t lane, std::uint64_t value,
                         const transport::MatchKey& key) = 0;
    // The lane stopped: values from `from` on will never be reached. Called again, with a `from` that may be
    // lower, if an earlier launched step fails too.
    virtual void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const Cause& cause) = 0;
    // The lane runs again: values above `to` are new.
    virtual void resumed(Rank rank, std::uint32_t lane, std::uint64_t to) = 0;
    // The request is accepted: it goes into its lane's queue, or fails at once because the lane is stopped.
    virtual void submitted(const Request&) {}
    // The deadline of the rank's next start on this lane has passed. Called before the lane stops. The cause
    // holds what the graph knows, and the callee may improve it.
    virtual void overdue(Rank, std::uint32_t /*lane*/, Cause&) {}
    // Whether the launched step goes on outside the workers, where it may never end.
    virtual bool is_outside(std::uint32_t /*step_index*/) { return false; }
    // When something of the launched step last moved there. Nothing: it has not, it has failed, or unknown.
    virtual std::optional<Instant> moved_at(std::uint32_t /*step_index*/) { return {}; }
    // The ranks that the launched step waits for there; empty: unknown.
    virtual std::vector<Step::Awaited> awaited(std::uint32_t /*step_index*/, const Step&) { return {}; }
    // An epoch of a group that spans nodes has ended here, by a cause of this node.
    virtual void ended(const transport::EpochEnd&) {}
    // The launched step has passed its deadline; its members are informed. It still ends by finished().
    virtual void cancel(std::uint32_t /*step_index*/) {}
    // So many of the lane's starts have failed, but may still touch their memory until they are retired.
    virtual void quarantined(Rank, std::uint32_t /*lane*/, std::uint32_t /*starts*/) {}
    // A start is over and no longer uses its plan. `well`: it has run without a failure.
    virtual void retired(Rank rank, std::uint32_t lane, std::uint64_t value, Plan& plan, bool well) = 0;
  };

  Graph(Options options, std::vector<Group> groups, Actions& actions);

  // ---- clients ---------------------------------------------------------------------------------
  // The rank has a new client: its lanes start empty at value 0 and its client timelines at 0. Returns
  // whether it is the rank's first in this run.
  bool attached(Rank rank);
  // No rank of the job has a client, on any node: the next ones begin a new run, in the present epochs.
  void begin_run();
  // The client left, in order or not; `text` says how. All places of its groups end. The client may have left
  // because of a failure: one that stopped a lane, or `heard`, which reached it by another way. Then the
  // others get that failure's culprit, so that a chain of departures names the rank at its root. Launched
  // work runs to its end. Returns the cause that the others get; nullptr if the rank had no client.
  CausePtr detached(Rank rank, const std::string& text, Instant now, const CausePtr& heard = nullptr);
  // The launcher reports that this rank will not come, or will not come back once it has left. Collectives
  // that need it fail at once. This holds until the rank attaches, Absences::expect_all(), or the last client
  // leaves.
  void absent(Rank rank, const std::string& text, Instant now);
  // The rank has received the fault by other means than a lane.
  void heard(Rank rank, std::uint64_t fault);
  // Gives the job's next number to a fault that ends places outside the graph.
  CausePtr new_fault(Cause cause);

  // Opens and closes lanes, and makes places. A client's lanes close when it leaves.
  OpenLanes& open_lanes() { return open_lanes_; }

  // ---- events ----------------------------------------------------------------------------------
  // kBusy: the lane is full, try again later. kBadArgument: the value is not the lane's next one, a wait
  // names an unknown timeline, or the lane carries kernels only. After kOk exactly one of reached and stopped
  // covers the value in the end.
  Code submit(Request request, Instant now);
  // Raises a client timeline. kBadArgument if it would go down.
  Code signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now);
  void reset_lane(Rank rank, std::uint32_t lane, Instant now);
  // The step has ended. `failed`: why it failed; nullptr: success. A failed step ends its place and stops the
  // lanes of its members.
  void finished(std::uint32_t step_index, Instant now, const Status* failed = nullptr);
  // Members that have arrived for an EXCHANGE by neighbours meet (lane_place.hpp). Call it at the end of a
  // turn.
  void meet(Instant now);
  // An epoch of a group has ended on another node.
  void ended_elsewhere(const transport::EpochEnd& end, Instant now);
  // Ends all places of the groups by one fault. Returns its cause.
  CausePtr abort(const std::vector<GroupId>& groups, Cause cause, Instant now,
                 Epochs::Why why = Epochs::Why::kOther);
  // Stops the lane before its next start, which fails for all its members. If there is none, its latest
  // launched step is given up, if that goes on outside the streams: it may wait for ranks of other nodes.
  void give_up(Rank rank, std::uint32_t lane, Cause cause, Instant now);
  // Enforces the deadlines of starts that are next on their lane. A deadline limits for how long nothing
  // moves that such a start waits for. Call at least every 100 ms. If a call comes much later, the engine was
  // held up itself, and that time counts against nobody.
  void tick(Instant now);

  Absences& absences() { return absences_; }

  // ---- state, read-only ------------------------------------------------------------------------
  const RankTable<RankLanes>& lanes() const { return ranks_; }
  std::span<const Group> groups() const { return matches_.groups(); }
  const MatchQueue& matches() const { return matches_; }
  const LaneTable& lane_names() const { return open_lanes_.names(); }
  const StepTable& steps() const { return steps_; }

 private:
  bool pump_lane(Rank rank, std::uint32_t lane, Instant now);
  bool arrive(Rank rank, std::uint32_t lane, Instant now);
  void disagree(const GroupPlaces::Match& match, const Place& place);
  void launch(const GroupPlaces::Match& match, Instant now);
  // The steps stay launched. Those behind them are given up too.
  void give_up_steps(const std::vector<std::uint32_t>& steps, const CausePtr& cause,
                     std::optional<std::uint32_t> failed);

  // Stops the lane before its next start, or at `failed_value`, where a launched start has failed. Without
  // `failed_value` it does nothing if the lane has stopped already.
  void stop_lane(Rank rank, std::uint32_t lane, const CausePtr& cause,
                 std::optional<std::uint64_t> failed_value = std::nullopt);
  void drop(Rank rank, std::uint32_t lane, const LaneQueue::Start& start);
  void resolve(Instant now);

  Options options_;
  Actions& actions_;
  MatchQueue matches_;
  StepTable steps_;
  Absences absences_;
  WorkList work_list_;
  RankTable<RankLanes> ranks_;
  OpenLanes open_lanes_;
  std::optional<Instant> last_tick_;
  std::uint64_t faults_ = 0;  // number of the latest fault
};

}  // namespace muster::scheduler
