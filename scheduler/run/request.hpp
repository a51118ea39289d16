// Request: one start of a plan, copied out of a client's command and checked. And the actions that the graph
// answers with.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/shm/command.hpp"
#include "scheduler/plan/plan.hpp"
#include "scheduler/run/cause.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace muster::scheduler {

struct Request {
  Rank rank;
  std::uint32_t lane = 0;
  std::uint64_t value = 0;                              // the point it reaches on its lane's timeline
  Plan* plan = nullptr;                                 // outlives the request: starts_in_flight holds it
  std::array<std::uint64_t, MUSTER_WAITS_MAX> waits{};  // points; 0: none
  Nanos timeout{0};  // for how long nothing may move that it waits for, once it is the next of its lane
};

// A launch of one kernel, or of one collective for all its members at once.
struct Step {
  struct Part {  // one rank's share: the request that it completes
    Rank rank;
    std::uint32_t lane = 0;
    std::uint64_t value = 0;
    Plan* plan = nullptr;
    Instant arrived{0};  // when nothing of its lane stood before it any more
  };
  std::vector<Part> parts;  // one for a kernel; the members in group order for a collective
};

// What the graph wants done; the engine carries it out in order.
//
// Owns    nothing. Thread  whoever calls the graph. Bound  each call is short: it must not change the graph.
// Fails   never: a device's failure is reported to Graph::finished().
class Actions {
 public:
  virtual ~Actions() = default;
  // Enqueue the step; report it to Graph::finished() with its index once its work is done.
  virtual void launch(std::uint32_t step_index, const Step& step) = 0;
  // The lane's timeline reached `value`.
  virtual void reached(Rank rank, std::uint32_t lane, std::uint64_t value) = 0;
  // The lane stopped: values from `from` on will never be reached. Again with a lower `from` if a step that
  // had been launched before fails too.
  virtual void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const Cause& cause) = 0;
  // The lane runs again: values above `to` are new.
  virtual void resumed(Rank rank, std::uint32_t lane, std::uint64_t to) = 0;
  // The request has its place on its lane, or fails at once because the lane is stopped.
  virtual void submitted(const Request&) {}
  // The deadline of the rank's next start on this lane has passed. Called before anything is changed; the
  // cause says what the graph knows, and may be told better.
  virtual void overdue(Rank, std::uint32_t /*lane*/, Cause&) {}
  // A start is over, well or not: its plan is no longer used by it.
  virtual void retired(Rank rank, std::uint32_t lane, std::uint64_t value, Plan& plan, bool well) = 0;
};

}  // namespace muster::scheduler
