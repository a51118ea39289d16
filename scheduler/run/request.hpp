// Request: one start of a plan, copied out of a client's command and checked. Actions: the calls by which the
// graph has its decisions carried out.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/shm/command.hpp"
#include "scheduler/run/cause.hpp"
#include "scheduler/run/place.hpp"
#include "scheduler/run/plan.hpp"
#include "transport/collective/job_links.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

struct Request {
  Rank rank;
  std::uint32_t lane = 0;
  std::uint64_t value = 0;                              // the point it reaches on its lane's timeline
  Plan* plan = nullptr;                                 // outlives the request: starts_in_flight holds it
  std::array<std::uint64_t, MUSTER_WAITS_MAX> waits{};  // points; 0: none
  Nanos timeout{0};  // once it is next on its lane: the longest time in which nothing moves that it waits for
  LaneId lane_id{};  // set by the graph
  Bases bases{};     // of a collective: where its vectors begin
  std::uint64_t step = 0;  // of the client's units, for traces; 0: none
};

// A launch of one kernel, or of one collective for all its members at once.
struct Step {
  struct Part {  // one rank's share, which completes one request
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    Plan* plan = nullptr;
    Instant arrived{0};  // when it was next on its lane, and its points were reached or launched
    LaneId lane_id{};
    Bases bases{};
    Stamp stamp{};  // of a collective
  };
  // A launched step behind which a part is launched: the part's stream waits for its end.
  struct After {
    std::uint32_t part = 0;    // of this step
    std::uint32_t step = 0;    // index of the other
    std::uint64_t number = 0;  // of the other
  };
  std::vector<Part> parts;    // one for a kernel; the members on this node in group order for a collective
  transport::MatchKey key{};  // of a collective of a group that spans nodes
  std::uint64_t number = 0;   // 1, 2, … in order of launch
  std::vector<After> after{};

  // Whether the part is launched behind the step of that index and number.
  bool is_behind(std::uint32_t part, std::uint32_t other, std::uint64_t number_of_other) const {
    return std::any_of(after.begin(), after.end(), [=](const After& each) {
      return each.part == part && each.step == other && each.number == number_of_other;
    });
  }
};

// Members of a group on another node for which a step waits.
struct AwaitedRanks {
  NodeIndex node;
  std::vector<Rank> ranks;
  bool all_missing = false;  // none of them has come; else at least one has not
};

// The graph's decisions; the engine carries them out in order.
//
// Owns    nothing. Thread  the caller of the graph. Bound  each call is short and must not change the graph.
// Fails   never: a device's failure is reported to Graph::finished().
class Actions {
 public:
  virtual ~Actions() = default;
  // Enqueue the step; report it to Graph::finished() with its index once its work is done. It lives until
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
  virtual std::vector<AwaitedRanks> awaited(std::uint32_t /*step_index*/, const Step&) { return {}; }
  // An epoch of a group that spans nodes has ended here, by a cause of this node.
  virtual void ended(const transport::EpochEnd&) {}
  // The launched step has passed its deadline; its members are informed. It still ends by finished().
  virtual void cancel(std::uint32_t /*step_index*/) {}
  // So many of the lane's starts have failed, but may still touch their memory until they are retired.
  virtual void quarantined(Rank, std::uint32_t /*lane*/, std::uint32_t /*starts*/) {}
  // A start is over and no longer uses its plan. `well`: it has run without a failure.
  virtual void retired(Rank rank, std::uint32_t lane, std::uint64_t value, Plan& plan, bool well) = 0;
};

}  // namespace muster::scheduler
