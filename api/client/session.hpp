// The client's side of a session: what a muster_session is.
//
// Fast path: start() and test() touch shared memory only. All else is one message over the control socket and
// one answer.
#pragma once

#include "api/base/clock.hpp"
#include "api/client/compare.hpp"
#include "api/client/description.hpp"
#include "api/client/direct_path.hpp"
#include "api/client/objects.hpp"
#include "api/client/plan_cache.hpp"
#include "api/client/ring_atomics.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/control.hpp"
#include "api/shm/ring.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

// Owns    the connection, the mappings and the plan cache.
// Thread  one at a time, and any for interrupt(); another session is another world.
// Bound   the ring's commands in flight; the daemon's limits for buffers and plans.
// Fails   with the statuses of muster.h; after a -3xx every call says the same.
struct muster_session {
 public:
  struct Connection {
    muster::shm::Descriptor socket;
    muster::shm::Descriptor doorbell;
    muster::shm::SubmissionView submission;
    muster::shm::CompletionView completion;
    muster::shm::Welcome welcome;
    muster::Nanos timeout;
    muster::shm::Mapping
        direct;  // the rank's direct segment and the group page; invalid where there is no direct path
    muster::shm::Mapping groups;
  };
  // Errors: PROTOCOL, VERSION (the direct path's memory is not what it should be).
  static muster::Result<std::unique_ptr<muster_session>> create(Connection connection);
  explicit muster_session(Connection connection);
  ~muster_session();
  muster_session(const muster_session&) = delete;
  muster_session& operator=(const muster_session&) = delete;

  // kStale in a child of fork(), else kOk. Every public call but muster_close begins with it, or with
  // usable().
  muster::Status in_its_process() const;
  // The same, and the loss if the daemon is gone.
  muster::Status usable() const;
  // Why the engine has closed the session; ok while it is open.
  muster::Status closed() const;
  // A code of this session where the engine's own words are not to be had.
  muster::Status in_words(muster::Code code) const;
  const muster::shm::Welcome& welcome() const { return connection_.welcome; }
  muster::Nanos timeout() const { return connection_.timeout; }
  const muster::Clock& clock() const { return clock_; }

  // One request and its answer. `extra` follows the message (a list). The answer's descriptor goes to
  // *descriptor, `sent` goes with the request unless it is -1. A Failure comes back as the Status it carries.
  template<class Answer, class Request>
  muster::Result<Answer> ask(Request request, muster::shm::MessageKind kind,
                             muster::shm::MessageKind answer_kind, std::span<const std::byte> extra = {},
                             std::vector<std::byte>* list = nullptr,
                             muster::shm::Descriptor* descriptor = nullptr, int sent = -1);

  // ---- submission, one ring write each: session.cpp; start_batch: batch.cpp -------------------------
  muster::Code start(muster_plan plan, const muster_submit& submit, muster_point* point);
  // All or none; *refused is the entry that was refused.
  muster::Code start_batch(std::span<muster_batch_entry> entries, std::size_t* refused);
  muster::Code signal(std::uint32_t timeline, std::uint64_t value);
  muster::Code reset(muster_lane lane);

  // ---- a refusal in words, asked for right after it: refusal.cpp -----------------------------------
  muster::Status not_started(muster::Code code, muster_plan plan, const muster_submit& submit);
  muster::Status not_started(muster::Code code, std::span<const muster_batch_entry> entries, std::size_t at);
  muster::Status not_signalled(muster::Code code, std::uint32_t timeline, std::uint64_t value);
  muster::Status not_reset(muster::Code code, muster_lane lane);
  // The ring did not take a command.
  muster::Status not_pushed(muster::Code code);

  // ---- for the direct path: memory.cpp; counters and loss: session.cpp ---------------------------
  // Where a range of a buffer lies in the rank's arena.
  muster::shm::Place place_of(const muster_range& range) const;
  std::byte* address_of(const muster_range& range) const;
  // A counter of what this process does itself, by name; none if there is no such.
  std::optional<std::uint64_t> own_counter(std::string_view name) const;
  bool engine_lives() { return !daemon_loss(); }
  // For who only polls, and would not hear of it: an engine that has not moved for long is looked after. One
  // system call then.
  std::optional<muster::Status> loss_of_silent_engine();
  // Of who only looks: a look at the engine now and then.
  std::optional<muster::Status> loss_seen_in_passing();
  const muster::Status& loss() const { return loss_; }

  // ---- waiting: session.cpp ----------------------------------------------------------------------
  muster::Status wait(muster_point point, muster::Nanos timeout);
  // The first of `points` to have a verdict, which is the answer; *index says which. All NONE:
  // `points.size()`.
  muster::Status wait_any(std::span<const muster_point> points, muster::Nanos timeout, std::size_t* index);
  muster::Status test(muster_point point);
  muster::shm::CompletionReader& completion() { return reader_; }
  const muster::shm::CompletionView& page() const { return connection_.completion; }

  // ---- interrupts: interrupt.cpp -----------------------------------------------------------------
  // The one call that any thread may make at any time, and a signal handler.
  muster::Code interrupt() noexcept;
  // A look, for who is about to wait.
  bool interrupted() const { return interrupt_.load(std::memory_order_relaxed); }
  // The rank leaves what it waits in, and everybody hears: the lane's next starts, or with MUSTER_LANE_COUNT
  // what the group runs directly in that epoch.
  muster::Status leave(muster_group group, std::uint64_t epoch, muster_lane lane);
  // A call that waits ends with this: the interrupt was for it, if it failed.
  muster::Status spend_interrupt(muster::Status status);
  // INTERRUPTED where the verdict tells of that.
  muster::Status as_interrupted(const muster::Status& verdict) const;

  // The latest call that a group's verdict failed. lane MUSTER_LANE_COUNT: no lane was stopped by it.
  struct FailedCall {
    muster::Status status;
    muster_lane lane = MUSTER_LANE_COUNT;
    muster_point failed_point = MUSTER_POINT_NONE;
  };
  const std::optional<FailedCall>& last_failure() const { return last_failure_; }
  // Kept if it is a group's verdict.
  void note_failure(const muster::Status& status, muster_lane lane = MUSTER_LANE_COUNT,
                    muster_point failed_point = MUSTER_POINT_NONE);

  // ---- memory: memory.cpp ------------------------------------------------------------------------
  struct Granted {
    muster_buffer buffer = 0;
    std::byte* address = nullptr;
  };
  muster::Result<Granted> alloc(std::uint64_t bytes);
  muster::Result<Granted> create(const muster_buffer_options& options);
  muster::Status query(muster_buffer buffer, muster_buffer_info* info) const;
  muster::Status free(muster_buffer buffer);
  // Which node-shared memory the buffer is, if all members of the group share it; 0: it is no such.
  muster::Result<std::uint64_t> shared_target(muster_buffer buffer, muster_group group);
  // Bytes of the buffer from the range's start on.
  std::uint64_t room_of(const muster_range& range) const;

  // ---- plans: plan.cpp ---------------------------------------------------------------------------
  muster::Result<muster_plan> plan(const muster_kernel& kernel);
  muster::Result<muster_plan> plan(const muster_collective& collective);
  muster::Result<muster_plan> plan(const muster_collective& collective,
                                   const muster::client::Description& description);
  // One-shot: the same description gives the same plan.
  muster::Result<muster_plan> cached(const muster_kernel& kernel);
  muster::Result<muster_plan> cached(const muster_collective& collective);
  muster::Status destroy(muster_plan plan);

  // ---- running: run.cpp --------------------------------------------------------------------------
  // Directly with the other members, or on the collective's usual lane. 0: the job's default.
  muster::Status run(muster_plan plan, muster::Nanos timeout);
  // The same, and never a sample: for what compares samples itself.
  muster::Status run_alone(muster_plan plan, muster::Nanos timeout);
  bool has_plan(muster_plan plan) const { return find(plan) != nullptr; }
  // The plan, if nothing need be asked or made before it is run; nullptr: it goes the long way.
  const muster::client::DirectPlan* at_hand(muster_plan plan) const;
  muster::client::DirectPath& direct() { return *direct_; }
  muster::Status conclude_at_hand(const muster::client::DirectPlan& plan, muster::Nanos timeout,
                                  muster::client::Outcome outcome);

  // ---- new counts: recount.cpp -------------------------------------------------------------------
  // `counts` is looked at for `count`, source_blocks and target_blocks alone.
  muster::Status recount(muster_plan plan, const muster_collective& counts);
  // Tells the engine all new counts that it has not heard of. BUSY: the ring is full.
  muster::Code tell_all();

  muster::client::Objects& objects() { return objects_; }
  muster::client::Comparison& comparison() { return comparison_; }

  // ---- groups and meshes: groups.cpp -------------------------------------------------------------
  muster::Result<muster_group> make_group(std::span<const std::int32_t> ranks, const char* name);
  muster::Result<muster_group> shrink_group(muster_group group, muster::Nanos timeout);
  muster::Status free_group(muster_group group);
  muster::Status abort_group(muster_group group);
  muster::Result<muster_mesh> make_mesh(muster_group group, const char* text);
  muster::Status use_mesh(muster_mesh mesh);
  muster::Status free_mesh(muster_mesh mesh);

  // ---- names, and what else is asked: session.cpp -------------------------------------------------
  muster::Result<muster::shm::MeshAnswer> mesh_dim(const char* dim);
  struct GroupFacts {
    std::int32_t rank = 0;
    std::string name;
    std::vector<std::int32_t> ranks;
  };
  muster::Result<GroupFacts> group(muster_group group);
  // The same, asked for once. Valid as long as the session.
  muster::Result<const GroupFacts*> known_group(muster_group group);
  muster::Result<std::uint32_t> create_timeline();
  muster::Result<int> event_descriptor();
  void goodbye();

 private:
  struct Segment {
    muster::shm::Mapping mapping;
    muster::shm::Descriptor memory;  // until it could be mapped
    std::uint64_t bytes = 0;
  };
  struct Buffer {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t shared_memory = 0;
    muster_group shared_by = 0;
    bool found = false;
    bool whole_segment = false;  // the segment goes with it
  };
  muster::Result<Granted> alloc(const muster::shm::BufferAlloc& request, int imported);
  muster::Result<Granted> map(const muster::shm::BufferAlloc& request, const muster::shm::BufferGrant& grant,
                              muster::shm::Descriptor memory);
  muster::Status open_segment(const muster::shm::BufferGrant& grant, muster::shm::Descriptor memory);
  void give_back(const muster::shm::BufferGrant& grant);
  void give_back_unopened();
  std::byte* address(const Buffer& buffer) const;
  struct Told {  // what the caller said of a collective
    muster::shm::PlanCollective message;
    muster::client::Described described;
  };
  struct PlanRecord {
    muster_plan plan = 0;                                // 0: none in this slot
    std::optional<muster_lane> usual_lane;               // none: a kernel
    std::unique_ptr<Told> told;                          // a collective's
    std::unique_ptr<muster::client::DirectPlan> direct;  // once it was run
    std::vector<muster::shm::Command> news;              // new counts that the engine has not heard of
    std::vector<muster_buffer> buffers;                  // that it names
    muster_point last = MUSTER_POINT_NONE;               // of its starts
  };
  muster::Result<muster::client::Description> describe(const muster_collective& collective);
  muster::Result<std::span<const std::byte>> exchange(std::span<std::byte> message,
                                                      std::span<const std::byte> extra,
                                                      muster::shm::Descriptor* descriptor, int sent);
  muster::Status lose(const muster::Status& status);
  muster::Status lose_engine(const std::string& how);
  PlanRecord* find(muster_plan plan);
  const PlanRecord* find(muster_plan plan) const { return const_cast<muster_session*>(this)->find(plan); }
  PlanRecord& remember(muster_plan plan);
  muster::Status make_room_in_cache();
  muster::Status forget_cached(muster_group group);
  muster::Status forget_cached_over(muster_buffer buffer);
  muster::Status leave_group(muster_group group);
  void forget_group(muster_group group);
  muster::Result<PlanRecord*> runnable(muster_plan plan);
  muster::Status seat(PlanRecord& record);
  // *counted, where it is not null: how many results of the group were shared, this one included.
  muster::Status run_directly(PlanRecord& record, muster::Nanos timeout, std::uint64_t* counted = nullptr);
  muster::Status run_agreed(const PlanRecord& record, muster::Nanos timeout);
  muster::Status run_sampled(muster_plan plan, muster::Nanos timeout);
  muster::Status check_lane(muster_lane lane);
  muster::Status run_by_engine(const PlanRecord& record, muster::Nanos timeout);
  muster::Code push(std::span<const muster::shm::Command> commands);
  muster::Code tell(PlanRecord& record);
  muster::Code command_of(muster_plan plan, const muster_submit& submit, muster::shm::Command* command) const;
  bool known_wait(muster_point wait) const;
  bool lane_full(muster_lane lane, std::uint64_t starts = 1);
  muster::Status full(muster_lane lane);
  muster::Status check_wait(std::size_t i, muster_point wait) const;
  muster::Code reset_if_asked(muster_lane lane);
  std::optional<muster::Code> own_timeline(muster_point point) const;
  muster::Status lane_status(muster_point point, muster::Code code);
  std::optional<muster::Status> daemon_loss();
  enum class Interrupts : std::uint8_t { kEnd, kIgnored };
  muster::Status await(muster_point point, muster::Nanos timeout, Interrupts interrupts = Interrupts::kEnd);
  template<class Wait>
  muster::Status wait_with_daemon(muster::Nanos timeout, Interrupts interrupts, Wait wait_until);
  muster::Status run_once(muster_plan plan, muster::Nanos timeout);
  muster::Status leave_lane(muster_group group, muster_lane lane, muster_point point);
  muster::Status not_reached() const;

  Connection connection_;
  muster::SteadyClock clock_;
  muster::shm::RingWriter<muster::client::RingAtomics> ring_;
  muster::shm::CompletionReader reader_;
  std::array<std::uint64_t, MUSTER_LANE_COUNT> submitted_{};  // last value handed out per lane
  std::vector<muster::shm::Command> batch_;                   // kept, so that a batch needs no heap
  std::array<std::uint64_t, MUSTER_LANE_COUNT> settled_{};    // value up to which a lane has room again
  std::array<bool, MUSTER_LANE_COUNT> reset_asked_{};         // since the lane's last start
  std::array<std::uint64_t, muster::shm::kClientTimelinesMax> signalled_{};
  std::uint32_t timelines_ = 0;
  std::map<std::uint32_t, Segment> segments_;
  std::vector<PlanRecord> plans_;  // by slot of the handle: a stale one never reaches the ring
  std::uint64_t untold_ = 0;       // of them with news
  std::unordered_map<muster_buffer, Buffer> buffers_;
  std::unique_ptr<muster::client::DirectPath> direct_;
  muster::client::Objects objects_{*this};
  muster::client::Comparison comparison_{*this};
  muster::client::PlanCache cache_;
  std::uint32_t pending_tests_ = 0;
  muster_mesh mesh_ = MUSTER_MESH_JOB;  // of which names speak
  std::set<muster_mesh> meshes_;        // that it has made
  std::map<std::pair<muster_mesh, std::string>, muster::shm::MeshAnswer>
      dims_;                                   // a name never changes its group
  std::map<muster_group, GroupFacts> groups_;  // nor a group its ranks
  muster::shm::Descriptor events_;
  std::vector<std::byte> buffer_;
  std::uint32_t serial_ = 0;
  std::int32_t pid_ = 0;
  std::uint32_t forks_ = 0;
  muster::Status loss_;
  std::optional<FailedCall> last_failure_;
  std::atomic<bool> interrupt_{false};  // raised by anybody, taken down by the session's thread alone
};

namespace muster::client {

// The lane on which a collective that is run and not started takes place.
muster_lane usual_lane(const shm::PlanCollective& collective);
// Keeps a failure as this thread's last error and gives the status's number back. What succeeded or is
// pending leaves the last error alone.
muster_status_t report(const Status& status) noexcept;
// The same for a code with fixed words.
muster_status_t report(Code code, const char* what) noexcept;
// What has been reported already, or succeeded.
inline muster_status_t report(muster_status_t status) noexcept {
  return status;
}

// Runs `body` (returning Status), catching what a library may throw: nothing leaves the C API. Free where
// nothing is thrown. Memory that is not there is the machine's limit, anything else our own defect.
template<class F>
muster_status_t guarded(F&& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Code::kNoResource,
                  "this process has no memory left for the call; free some and call again");
  } catch (const std::length_error&) {
    return report(Code::kNoResource, "the call needs more memory than a process can have; ask for less");
  } catch (const std::exception& error) {
    return report(Code::kInternal, error.what());
  }
}

// A call on a session that can be used.
template<class F>
muster_status_t with_session(muster_session* session, F&& body) noexcept {
  return guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    return body();
  });
}

}  // namespace muster::client

#include "api/client/session_ask.hpp"
