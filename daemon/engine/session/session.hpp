// Session: one attached client of one rank, from its Welcome until its memory has been given back.
//
// Two sides meet here. The conductor makes and drops buffers and plans when the client asks by message. A
// worker's turn takes commands out of the ring. The engine's lock orders the two.
#pragma once

#include <span>

#include "api/shm/completion.hpp"
#include "api/shm/segment.hpp"
#include "daemon/engine/session/command_intake.hpp"
#include "daemon/engine/session/publication.hpp"
#include "daemon/engine/session/session_buffers.hpp"
#include "daemon/engine/session/session_options.hpp"
#include "daemon/engine/session/session_plans.hpp"

namespace muster::engine {

// Owns    the two segments, and the client's buffers and plans.
// Thread  under the engine's lock; buffers also by the conductor alone.
// Bound   that of its parts.
// Fails   as its parts.
class Session {
 public:
  Session(const SessionOptions& options, shm::SubmissionView submission, shm::CompletionView completion,
          Arena& arena);

  const SessionOptions& options() const { return options_; }
  const shm::SubmissionView& submission() const { return submission_; }
  const shm::CompletionView& page() const { return completion_; }

  Publication& publication() { return publication_; }
  SessionBuffers& buffers() { return buffers_; }
  const SessionBuffers& buffers() const { return buffers_; }
  SessionPlans& plans() { return plans_; }
  const SessionPlans& plans() const { return plans_; }
  CommandIntake& intake() { return intake_; }

  // How many plans and shared buffers name the group.
  std::size_t uses(GroupId group) { return plans_.of(group) + buffers_.shared_by(group); }
  // The objects to which the session's client may refer. `groups`: all groups of the job.
  Scope scope(std::span<const scheduler::Group> groups) const;

 private:
  const SessionOptions options_;
  shm::SubmissionView submission_;
  shm::CompletionView completion_;
  Publication publication_;
  SessionBuffers buffers_;
  SessionPlans plans_;
  CommandIntake intake_;
};

}  // namespace muster::engine
