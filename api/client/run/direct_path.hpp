// DirectPath: the direct path of one session: its channels, made at first use, and the handling of an
// operation's outcome.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/direct/member_regions.hpp"
#include "api/client/direct/planning.hpp"
#include "api/client/interrupt.hpp"
#include "api/client/last_failure.hpp"
#include "api/client/run/peer_memory.hpp"
#include "api/client/submit/buffers.hpp"
#include "api/client/submit/submission.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace muster::client {

// Owns    mappings, channels, stages.
// Thread  the session's.
// Bound   one channel per group of the rank; one operation at a time. The channel of a freed group stays
//         until another group has its line. While a peer holds the group, making it again gives the same one,
//         in which this member is as far as it was.
// Fails   run: MISMATCH, TIMEOUT, PEER_LOST, ABORTED as the epoch's cause says; INTERRUPTED; DAEMON_LOST. It
//         ends the group's epoch with ABORTED if a peer published an impossible operation, or with the
//         memory's error if that was not to be had.
class DirectPath final : private WaitHooks {
 public:
  struct Uses {  // all outlive it
    Connection& connection;
    LastFailure& last_failure;
    Interrupt& interrupt;
    Submission& submission;
    Buffers& buffers;
  };
  static Result<std::unique_ptr<DirectPath>> open(const Uses& uses, shm::Mapping own, shm::Mapping groups,
                                                  const Machine& machine);

  // Finds the group's channel and chooses path and algorithm.
  Result<DirectPlan> plan(std::uint64_t handle, const Described& described);
  // Where the engine carries the plan out, all have only agreed on it afterwards.
  Status run(const DirectPlan& plan, Nanos timeout) {
    const Outcome outcome = attempt(plan, timeout);
    return outcome == Outcome::kDone ? Status() : conclude(plan, timeout, outcome);
  }
  // The two halves of run(): the operation, and the end of one that is not done.
  Outcome attempt(const DirectPlan& plan, Nanos timeout);
  Status conclude(const DirectPlan& plan, Nanos timeout, Outcome outcome);
  // The rank is about to give the group up.
  void drain(std::uint64_t group, Nanos timeout);
  // "runs_completed", "run_bytes_moved", "run_sleeps".
  std::optional<std::uint64_t> counter(std::string_view name) const;

 private:
  DirectPath(const Uses& uses, const Machine& machine)
      : uses_(uses), peer_memory_(uses.connection, uses.buffers), machine_(machine) {}

  // ---- WaitHooks
  Instant now() const override;
  std::uint32_t core() const override;
  bool engine_gone() override;
  void overdue(const Wanted& wanted) override;
  bool interrupted() const override;

  Result<Channel*> channel(std::uint64_t group);
  void forget_line(std::uint32_t line);
  bool is_alone();
  Status failed(const DirectPlan& plan, Outcome outcome);
  Status hear(const DirectPlan& plan);
  Status noted(Status status);
  Status give_up(const DirectPlan& plan, Status why);
  shm::DirectMessage question(const DirectPlan& plan) const;
  shm::DirectMessage question(const Wanted& wanted) const;
  Status told(const shm::DirectMessage& message, shm::MessageKind kind);
  Status disagreement(const DirectPlan& plan);
  Status leave(const DirectPlan& plan);

  Uses uses_;
  PeerMemory peer_memory_;
  Machine machine_;
  std::optional<DirectMemory> memory_;
  std::optional<Stages> stages_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Channel>> channels_;  // by group handle
  Instant look_at_{0};         // whether the engine is there, at the latest
  std::uint64_t running_ = 0;  // plan of the operation in flight, for questions
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_moved_ = 0;
};

}  // namespace muster::client
