// CommandIntake: takes a session's commands out of its ring, checks the copies, and turns them into requests
// for the graph.
#pragma once

#include "api/shm/completion.hpp"
#include "api/shm/ring.hpp"
#include "api/shm/segment.hpp"
#include "daemon/engine/session/session_buffers.hpp"
#include "daemon/engine/session/session_options.hpp"
#include "daemon/engine/session/session_plans.hpp"
#include "scheduler/run/graph.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace muster::engine {

// Owns    the commands that are copied ahead, and the new counts that the client has sent for plans.
// Thread  under the engine's lock.
// Bound   one batch of commands copied ahead.
// Fails   drain: kProtocol with the client's fault; the engine then ends the session.
class CommandIntake {
 public:
  // Commands a turn, so that one client cannot hold the others up.
  static constexpr std::size_t kBatch = 64;

  CommandIntake(const SessionOptions& options, shm::RingReader<> ring, shm::CounterWriter& counters,
                const SessionBuffers& buffers, SessionPlans& plans)
      : options_(options), ring_(ring), counters_(counters), buffers_(buffers), plans_(plans) {}

  // Takes at most kBatch commands and submits them. Returns how many were taken.
  Result<std::size_t> drain(scheduler::Graph& graph, Instant now);
  bool try_sleep() { return ring_.try_sleep(); }
  void awake() { ring_.awake(); }
  bool has_backlog() const { return next_ < batch_count_; }
  // The next command waits for room on its lane. A step that ends, a deadline or the conductor makes room.
  bool blocked() const { return blocked_; }

 private:
  Status execute(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full);
  Status start(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full);
  Nanos default_deadline(const scheduler::Plan& plan) const;
  static Status move_bases(const shm::Command& command, scheduler::Request& request);
  Status take_numbers(const shm::Command& command);
  Status recount(const scheduler::Graph& graph, const shm::Command& command);

  const SessionOptions& options_;
  shm::RingReader<> ring_;
  shm::CounterWriter& counters_;
  const SessionBuffers& buffers_;
  SessionPlans& plans_;
  std::array<std::vector<std::uint64_t>, shm::kCountLists> numbers_;
  std::array<shm::Command, kBatch> batch_{};
  std::size_t batch_count_ = 0;
  std::size_t next_ = 0;
  bool blocked_ = false;
  std::uint64_t step_ = 0;  // of the starts that follow
};

}  // namespace muster::engine
