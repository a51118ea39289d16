// Session: one attached client of one rank, from its Welcome to its burial.
//
// Two sides meet here. The conductor makes and drops buffers and plans, as the client asks by message. The
// duty cycle takes commands out of the ring, checks the copies, and turns them into requests for the graph.
// The engine's baton orders the two.
#pragma once

#include "api/base/bounded.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/control.hpp"
#include "api/shm/ring.hpp"
#include "api/shm/segment.hpp"
#include "daemon/engine/arena.hpp"
#include "daemon/engine/group_table.hpp"
#include "daemon/engine/named_memory.hpp"
#include "scheduler/run/graph.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::engine {

struct SessionOptions {
  Rank rank;
  SessionId id;
  std::int32_t pid = 0;
  std::uint32_t buffers_max = 0;
  std::uint32_t plans_max = 0;
  Nanos deadline{0};                   // default of every start
  const GroupTable* groups = nullptr;  // outlives the session
};

struct Buffer {
  Arena::Grant grant;
  std::uint64_t bytes = 0;          // as asked for: the bound of every access
  std::uint32_t plans = 0;          // that name it
  NamedMemory::Hold name;           // of a named buffer
  std::uint64_t shared_memory = 0;  // which memory its ranks have in common; 0: it is this rank's alone
  GroupId shared_by;                // who they are
};

// Owns    the two segments, the client's buffers and plans.
// Thread  under the engine's baton; buffers also by the conductor alone.
// Bound   buffers_max, plans_max, one batch of commands copied ahead.
// Fails   drain: kProtocol with what the client did wrong; the engine then ends the session.
class Session {
 public:
  Session(SessionOptions options, shm::SubmissionView submission, shm::CompletionView completion,
          Arena& arena);

  // ---- duty ------------------------------------------------------------------------------------
  // Takes at most kBatch commands and submits them. Returns how many were taken.
  Result<std::size_t> drain(scheduler::Graph& graph, Instant now);
  bool try_sleep() { return ring_.try_sleep(); }
  void awake() { ring_.awake(); }
  bool has_backlog() const { return next_ < batch_count_; }
  // What comes next waits for room on its lane: a step that ends, a deadline or a conductor makes some.
  bool blocked() const { return blocked_; }

  shm::CompletionWriter& completion() { return completion_writer_; }
  shm::CounterWriter& counters() { return counters_; }
  // Something was published since the last take_news().
  void note_news() { news_ = true; }
  bool take_news() { return std::exchange(news_, false); }
  void wake_client();
  // The session is over: every call of the client says `code` from now on.
  void close(Code code, std::string_view why = {});

  // ---- conductor -------------------------------------------------------------------------------
  // One with memory of the rank's arena, which it goes back to if this fails.
  Result<Handle> add_buffer(Buffer buffer);
  // Errors: NO_RESOURCE if no more buffers are allowed.
  Status check_buffer_limit() const;
  const Buffer* buffer(Handle handle) const { return buffers_.find(handle); }
  bool holds(std::uint64_t identity) const;
  // Plans and shared buffers that name the group.
  std::size_t uses(GroupId group);
  // Appends memory that is nobody's any more: to be let go without the baton, since it may take long.
  using Gone = std::vector<std::shared_ptr<device::Memory>>;
  Status free_buffer(Handle handle, Gone& gone);
  // `said`: how its client described it, for new counts; of a kernel nothing.
  Result<Handle> add_plan(std::unique_ptr<scheduler::Plan> plan, const shm::PlanCollective& said = {});
  Status destroy_plan(Handle handle);
  const scheduler::Plan* plan(Handle handle) const {
    const auto* found = plans_.find(handle);
    return found != nullptr ? (*found)->plan.get() : nullptr;
  }
  // True once per segment and session: the client does not have its descriptor yet.
  bool introduce_segment(std::uint32_t segment);
  // The client's end of a socket that gets a byte at each completion, and whose end says that the engine is
  // gone (a datagram socket would stay silent); the former one ends. Under the baton: workers send on it.
  Result<shm::Descriptor> open_events();
  // No start of this session is in flight any more.
  bool idle() const { return starts_in_flight_ == 0; }
  void retired() { --starts_in_flight_; }
  // Gives all buffers back to the arena. The session must be idle.
  void bury(Gone& gone);

  const SessionOptions& options() const { return options_; }
  const shm::SubmissionView& submission() const { return submission_; }
  const shm::CompletionView& page() const { return completion_; }

  static constexpr std::size_t kBatch =
      64;  // commands per turn, so that one client cannot hold the others up

 private:
  struct PlanRecord {
    std::unique_ptr<scheduler::Plan> plan;
    shm::PlanCollective said;
  };
  // What a plan was before its counts were changed, as long as starts of it are in flight.
  struct FormerPlan {
    Handle handle;
    std::unique_ptr<scheduler::Plan> plan;
  };
  Status execute(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full);
  Status take_numbers(const shm::Command& command);
  Status recount(scheduler::Graph& graph, const shm::Command& command);
  void hold_buffers(const scheduler::Plan& plan);
  void release_buffers(const scheduler::Plan& plan);
  void forget_former();
  Status start(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full);

  SessionOptions options_;
  shm::SubmissionView submission_;
  shm::CompletionView completion_;
  Arena& arena_;
  shm::RingReader<> ring_;
  shm::CompletionWriter completion_writer_;
  shm::CounterWriter counters_;
  SlotMap<Buffer> buffers_;
  SlotMap<std::unique_ptr<PlanRecord>> plans_;
  std::vector<FormerPlan> former_;
  std::array<std::vector<std::uint64_t>, shm::kCountLists> numbers_;
  shm::Descriptor events_;
  std::vector<bool> introduced_;
  std::array<shm::Command, kBatch> batch_{};
  std::size_t batch_count_ = 0;
  std::size_t next_ = 0;
  std::uint32_t starts_in_flight_ = 0;
  std::uint64_t buffer_bytes_ = 0;
  std::uint64_t buffer_bytes_peak_ = 0;
  bool blocked_ = false;
  bool news_ = false;
};

}  // namespace muster::engine
