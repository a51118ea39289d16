// muster_session: a root of objects.
//
// An object uses only objects that are made before it, and none uses the session: only the C functions in
// entries/ do.
#pragma once

#include "api/client/check/check_mode.hpp"
#include "api/client/connection.hpp"
#include "api/client/error.hpp"
#include "api/client/groups.hpp"
#include "api/client/interrupt.hpp"
#include "api/client/last_failure.hpp"
#include "api/client/run/compare.hpp"
#include "api/client/run/direct_path.hpp"
#include "api/client/run/plans.hpp"
#include "api/client/run/run.hpp"
#include "api/client/run/waiting.hpp"
#include "api/client/session/attachment.hpp"
#include "api/client/session/closed_sessions.hpp"
#include "api/client/session/objects.hpp"
#include "api/client/session/shown_units.hpp"
#include "api/client/submit/buffers.hpp"
#include "api/client/submit/plan_table.hpp"
#include "api/client/submit/submission.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

// Owns    its objects, and the two segments that it shares with the engine.
// Thread  one at a time, and any for interrupt(). Sessions share no state.
// Bound   that of its objects.
// Fails   with the statuses of muster.h; after a -3xx every call returns the same.
//
// Its mark, the first member, stays readable when it is closed.
struct muster_session {
 public:
  enum class Mode : std::uint8_t { kPlain, kCheck };  // kCheck: memory and the order of starts are checked

  // Errors: PROTOCOL, VERSION (the direct path's memory is not what it should be).
  static muster::Result<std::unique_ptr<muster_session>> create(muster::client::Attachment attachment,
                                                                Mode mode);
  ~muster_session();
  muster_session(const muster_session&) = delete;
  muster_session& operator=(const muster_session&) = delete;
  // Closed sessions keep their memory (closed_sessions.hpp).
  static void* operator new(std::size_t bytes) { return muster::client::take_session_memory(bytes); }
  static void operator delete(void* memory) noexcept { muster::client::keep_session_memory(memory); }

  // kStale if it is closed or in a child of fork(), else kOk. Every public call begins with this, is_here()
  // or usable().
  muster::Status in_its_process() const { return mark_.is_here() ? muster::Status() : mark_.why_not(); }
  bool is_closed() const { return mark_.forks == muster::client::SessionMark::kClosed; }
  // As in_its_process(), and why no call can succeed any more.
  muster::Status usable() const { return mark_.is_here() ? connection_.usable() : usable_elsewhere(); }
  // Open, in its process, and not in check mode. Calls that must be fast look at this or is_usable() first.
  bool is_here() const { return mark_.is_here(); }
  // Null: it is not in check mode.
  muster::client::CheckMode* check() { return check_.get(); }
  // Whether is_here() and usable() is ok.
  bool is_usable() const { return mark_.is_here() && connection_.is_usable(); }
  // The only call for any thread at any time, and for a signal handler: no lock, no allocation, no system
  // call.
  muster::Code interrupt() noexcept;

  muster::client::Connection& connection() { return connection_; }
  const muster::shm::CompletionView& page() const { return page_; }
  muster::shm::CompletionReader& completion() { return completion_; }
  const muster::client::LastFailure& last_failure() const { return last_failure_; }
  muster::client::Submission& submission() { return submission_; }
  muster::client::Waiting& waiting() { return waiting_; }
  muster::client::Groups& groups() { return groups_; }
  muster::client::Buffers& buffers() { return buffers_; }
  muster::client::Plans& plans() { return plans_; }
  muster::client::Comparison& comparison() { return comparison_; }
  muster::client::Runs& runs() { return runs_; }
  muster::client::Objects& objects() { return objects_; }
  muster::client::ShownUnits& shown_units() { return shown_units_; }

  // A counter of this process's own runs, by name; nothing if there is none of that name.
  std::optional<std::uint64_t> own_counter(std::string_view name) const;

  // Once all ranks of the mesh have called with the same deadline.
  muster::Status set_mesh_deadline(muster_mesh mesh, muster::Nanos deadline);

 private:
  // *opened: not ok if the memory of the direct path is wrong.
  muster_session(muster::client::Attachment attachment, Mode mode, muster::Status* opened);
  muster::Status usable_elsewhere() const;
  muster::Status agree_on(muster_group group, muster::Nanos deadline);

  muster::client::SessionMark mark_;
  muster::shm::SubmissionView ring_;
  muster::shm::CompletionView page_;
  muster::shm::CompletionReader completion_;
  muster::client::Connection connection_;
  muster::client::LastFailure last_failure_;
  muster::client::Interrupt interrupt_;
  muster::client::PlanTable plan_table_;
  muster::client::Submission submission_;
  muster::client::Waiting waiting_;
  muster::client::Groups groups_;
  std::unique_ptr<muster::client::CheckMode> check_;
  muster::client::Buffers buffers_;
  std::unique_ptr<muster::client::DirectPath> direct_;  // null in a job without the direct path
  muster::client::Plans plans_;
  muster::client::Comparison comparison_;
  muster::client::Runs runs_;
  muster::client::Objects objects_;
  muster::client::ShownUnits shown_units_;
};

namespace muster::client {

// Runs `body` if the session is usable.
template<class F>
muster_status_t with_session(muster_session* session, F&& body) noexcept {
  return guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    return body();
  });
}

}  // namespace muster::client
