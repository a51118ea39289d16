// Graph: the starts in flight of all local ranks of a job, and what each waits for. A sans-IO core (decision
// D15): events come in by calls with the time passed along, what to do goes out through Actions. No clock,
// thread, socket or device inside.
//
// A lane is a queue. Its head may go when the points it waits for are reached; a kernel may also go behind
// kernels of its own lane that are running, because the lane's stream keeps them in order. A collective goes
// when nothing of its lane runs before it and all members have arrived (Sequencer). What former clients of
// the rank have left running counts: it lies on the same streams. A failure stops the lane:
// what stands behind it, and what waits for it on other lanes, fails with the same cause, until the client
// resets the lane. Where a collective falls so that its group has not met for, the other members hear of the
// same cause: they would wait for it, or take the rank's next one for it.
#pragma once

#include "api/base/bounded.hpp"
#include "scheduler/run/request.hpp"
#include "scheduler/run/sequencer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::scheduler {

struct GraphOptions {
  std::uint32_t world = 1;          // ranks of the job, all local
  std::uint32_t lane_depth = 1024;  // starts waiting or running per lane
  std::uint32_t launch_depth = 8;   // kernels of one lane handed to its stream at a time
};

// Owns    the queues and timelines of every rank, and the sequencer.
// Thread  whoever holds the engine's baton.
// Bound   lane_depth starts per lane; launch_depth steps of a rank's lane at once, over all its clients, of
//         which one is a collective at most.
// Fails   submit() refuses with kBusy when the lane is full; everything else is total.
class Graph {
 public:
  Graph(GraphOptions options, std::vector<Group> groups, Actions& actions);

  // ---- events ----------------------------------------------------------------------------------
  // The rank has a client again: its lanes start empty at value 0 and its client timelines at 0.
  void attached(Rank rank);
  // The client left, in order or not; `text` says how. Whoever is attached and shares a group with it hears
  // of it at once or with its next collective there; if a failure had stopped the leaver, they hear of that
  // one's culprit, so that a chain of departures names the rank at its root; so if it left because of
  // `heard`, a failure that is not of its lanes. Running work goes on to its end.
  // Returns what the others hear; nothing if the rank had no client.
  std::optional<Verdict> detached(Rank rank, const std::string& text, Instant now,
                                  const Verdict* heard = nullptr);
  // Who started the ranks says that this one will not come, or not come back once it has left: nobody waits
  // for it any more. Until it attaches after all, expect_all(), or nobody is attached.
  void absent(Rank rank, const std::string& text, Instant now);
  void expect_all();
  // Why the rank is not there and will not come; nullptr otherwise.
  const Verdict* gone(Rank rank) const {
    const RankState& r = state(rank);
    return !r.present && r.absence ? &*r.absence : nullptr;
  }

  // kBusy: the lane is full, offer it again later. kBadArgument: value is not the lane's next, or a wait is
  // for a timeline that does not exist. On kOk exactly one of reached or stopped covers it in the end.
  Code submit(const Request& request, Instant now);
  bool lane_full(Rank rank, std::uint32_t lane) const;
  // Stands for a failure, until it is reset: what is submitted now fails at once.
  bool stopped(Rank rank, std::uint32_t lane) const {
    const Lane& l = state(rank).lanes[lane];
    return l.failed_from != 0 && l.failed_to == 0;
  }
  // Raise a client timeline. kBadArgument if it would go down.
  Code signal(Rank rank, std::uint32_t timeline, std::uint64_t value, Instant now);
  void reset_lane(Rank rank, std::uint32_t lane, Instant now);
  // The rank has been told of the failure on another way than by a lane.
  void acknowledge(Rank rank, std::uint64_t event);

  void finished(std::uint32_t step_index, Instant now);
  void abort(GroupId group, Verdict verdict, Instant now);
  // The rank does not wait for what its lane has not launched: that falls, for all its members. Nothing if
  // there is none.
  void give_up(Rank rank, std::uint32_t lane, Verdict verdict, Instant now);
  // Another group in the place of one that nobody uses any more, or yet. Empty: none.
  void set_group(GroupId group, Group now);
  // Enforces the deadlines of starts that are next on their lane. What counts is how long nothing has moved
  // that such a start waits for: work before it, on its lane or on those whose points it waits for, takes the
  // time that it takes; a collective that has arrived waits for its members. Call at least every 100 ms, and
  // at next_deadline(): who calls later was held up itself, and nobody is blamed for that time.
  void tick(Instant now);
  std::optional<Instant> next_deadline() const;

  // ---- what others may ask ---------------------------------------------------------------------
  std::uint64_t reached(Rank rank, std::uint32_t lane) const { return state(rank).lanes[lane].reached; }
  // The value that the next start on this lane must carry.
  std::uint64_t next_value(Rank rank, std::uint32_t lane) const { return state(rank).lanes[lane].last + 1; }
  std::uint32_t steps_in_flight() const { return steps_in_flight_; }
  std::span<const Group> groups() const { return sequencer_.groups(); }
  const Sequencer& sequencer() const { return sequencer_; }
  // The next start of a lane that could not be launched yet, for reports.
  struct Head {
    Rank rank;
    std::uint32_t lane = 0;
    const Plan* plan = nullptr;
    bool arrived = false;  // a collective that waits for its peers
    // What else it waits for, in words, and the lane of the rank that stands in the way, if it is one.
    std::string obstacle;
    std::optional<std::uint32_t> blocking_lane;
  };
  std::vector<Head> heads() const;
  // Whether the rank has submitted a collective of that group on that lane, and it is not launched.
  bool has_submitted(Rank rank, std::uint32_t lane, GroupId group) const;
  // Collectives that all members have come to and that are not over.
  struct Running {
    const Step* step = nullptr;
    Instant since{0};
  };
  std::vector<Running> running() const;
  // Time for which the rank's compute lane had work and waited for a collective.
  Nanos exposed(Rank rank) const { return state(rank).exposed; }

 private:
  static constexpr std::size_t kFailuresKept = 64;  // of a lane
  static constexpr std::size_t kNumbersKept = 8;    // of a lane's failure
  static constexpr std::size_t kKnownMax = 64;      // of a rank
  static constexpr std::uint64_t kNever = UINT64_MAX;

  struct Start {
    Request request;
    std::uint64_t submission = 0;  // among all of the graph
    bool arrived = false;          // a collective that waits for its peers in the sequencer
    bool launched = false;
  };
  struct Failed {  // values that were never reached, and why
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    Verdict verdict;
  };
  struct Lane {
    explicit Lane(std::uint32_t depth) : queue(depth) {}
    BoundedQueue<Start> queue;
    std::uint32_t launched = 0;  // a prefix of the queue
    bool launched_collective = false;
    Instant moved{0};        // when its next start got there, or arrived, or the last before it was over
    std::uint64_t last = 0;  // value of the newest start
    std::uint64_t reached = 0;
    std::uint64_t failed_from = 0;  // 0: runs
    std::uint64_t failed_to = 0;    // 0 while it is stopped
    Verdict verdict;
    std::uint64_t first_event = 0;       // Verdict::event as it came
    std::vector<std::uint64_t> numbers;  // of the failure (Verdict::event), which a reset gets over
    std::optional<Meeting> told_at;      // where it failed, if that is a meeting
    std::uint64_t told_of = 0;           // and up to which submission its members hear of that
    std::vector<Failed> before;          // failures that were reset, oldest first

    // One more number of the same failure. Beyond the bound one of them is told again after the reset.
    void number(std::uint64_t event) {
      if (numbers.size() == kNumbersKept) numbers.erase(numbers.begin() + 1);
      numbers.push_back(event);
    }
    bool told_of_at(const Meeting& meeting) const { return told_at && told_at->same_place(meeting); }
  };
  struct Known {
    std::uint64_t event = 0;
    std::uint64_t at = 0;  // submissions before it knew
  };
  struct RankState {
    std::vector<Lane> lanes;
    std::array<std::uint64_t, shm::kClientTimelinesMax> timelines{};
    std::array<Instant, shm::kClientTimelinesMax> signalled{};  // when each was raised
    bool present = false;
    std::optional<Verdict> root;                             // of another rank, because of which it left
    std::optional<Verdict> absence;                          // why it will not come, once it is not present
    std::array<std::uint32_t, MUSTER_LANE_COUNT> running{};  // by lane, parts of launched steps; of former
                                                             // clients too
    std::uint32_t generation = 0;
    std::uint64_t born_after = 0;  // the latest failure before its client came
    std::vector<Known> known;      // later ones that it has acknowledged, the latest last
    std::optional<Instant> exposed_since;
    Nanos exposed{0};
  };
  struct InFlight {
    Step step;
    Instant since{0};
    std::vector<std::uint32_t> generations;  // of each part's rank, at launch
    bool used = false;
  };
  // What a step of many parts borrows while it is in flight. Every step has room for a pair.
  struct Room {
    std::vector<Step::Part> parts;
    std::vector<std::uint32_t> generations;
    void reserve(std::size_t members) {
      parts.reserve(members);
      generations.reserve(members);
    }
  };
  static constexpr std::size_t kNarrow = 2;
  enum class Ready : std::uint8_t { kYes, kNo, kFailed };

  std::vector<Lane> new_lanes() const;
  void make_rooms(GroupId group);
  RankState& state(Rank rank) { return ranks_[rank.value]; }
  const RankState& state(Rank rank) const { return ranks_[rank.value]; }
  static void remember(Lane& lane);
  void pump(Rank rank, Instant now);
  bool pump_lane(Rank rank, std::uint32_t lane, Instant now);
  Ready readiness(const RankState& rank, std::uint32_t lane, const Start& start,
                  const Verdict** failed) const;
  static const Verdict* failure_at(const Lane& lane, std::uint64_t value);
  void launch(std::span<const Sequencer::Arrival> members, Instant now);
  Room* room_of(std::size_t members, std::uint32_t lane, const Plan& plan);
  static void exchange(InFlight& step, Room* room);
  bool arrive(Rank rank, std::uint32_t lane, Start& start, Instant now);
  void stop_lane(Rank rank, std::uint32_t lane, Verdict verdict, const Meeting* told_at);
  bool is_over(std::uint32_t lane, const Start& start, std::uint64_t event) const;
  void note_dropped(const RankState& rank, std::uint32_t lane, const Start& start);
  void tell_known(const RankState& rank, const Meeting& meeting, std::uint64_t submission);
  void stop_members(const std::vector<Sequencer::Arrival>& members, const Verdict& verdict);
  void fail_lane(Rank rank, std::uint32_t lane, const Verdict& verdict, const Meeting* told_at, Instant now);
  void end_next(Rank rank, std::uint32_t lane, const Verdict& verdict, Instant now);
  void fail_members(const std::vector<Sequencer::Arrival>& members, const Verdict& verdict, Instant now);
  void spread(Instant now);
  static std::uint64_t known_since(const RankState& rank, std::uint64_t event);
  static bool knows(const RankState& rank, std::uint64_t event) { return known_since(rank, event) != kNever; }
  void forget_absences();
  void leave_groups(Rank rank, const Verdict& verdict, Instant now);
  const Verdict* failure_of(const RankState& rank) const;
  const Verdict* absence_in(const CollectiveWork& work) const;
  void forgive_lateness(Instant now);
  void end_overdue(Rank rank, std::uint32_t lane, Instant now);
  std::optional<Instant> deadline_of(const RankState& rank, std::uint32_t lane) const;
  std::optional<Instant> still_since(const RankState& rank, std::uint32_t lane, std::uint32_t seen) const;
  Verdict overdue(Rank rank, std::uint32_t lane, const Start& start) const;
  Verdict missed(const CollectiveWork& work, std::uint32_t lane, const Start& start) const;
  struct Obstacle {
    std::string text;
    std::optional<std::uint32_t> lane;  // whose head stands in the way
  };
  Obstacle waiting_for(const RankState& rank, std::uint32_t lane, const Start& start) const;
  void note_exposure(RankState& rank, Instant now);

  GraphOptions options_;
  Actions& actions_;
  Sequencer sequencer_;
  std::vector<RankState> ranks_;
  std::vector<InFlight> steps_;
  std::vector<std::uint32_t> free_steps_;
  std::vector<Room> rooms_;  // group · MUSTER_LANE_COUNT + lane: a channel has one step in flight at most
  // What stopped lanes have dropped, and ranks that may go on elsewhere: both are worked off in spread().
  struct Dropped {
    Meeting meeting;
    Verdict verdict;
    std::uint64_t submission = 0;
  };
  std::vector<Dropped> dropped_;
  std::vector<Rank> stirred_;
  bool spreading_ = false;
  std::vector<Rank> touched_;  // of the step that has finished: kept, so that it needs no heap
  std::uint32_t steps_in_flight_ = 0;
  std::uint32_t absences_ = 0;
  std::optional<Instant> last_tick_;
  std::uint64_t failures_ = 0;  // Verdict::event of the latest
};

}  // namespace muster::scheduler
