#include "daemon/supervisor/takeover/saved_state.hpp"

#include "api/base/log.hpp"

#include <utility>

namespace muster::supervisor {

Result<SavedState> SavedState::create(std::uint64_t epoch, Instant now) {
  MUSTER_ASSIGN_OR_RETURN(StateFile file, StateFile::create());
  State state;
  state.epoch = epoch;
  state.protocol = state_format().protocol;
  state.started_ns = now.count();
  return SavedState(std::move(file), std::move(state));
}

SavedState::Predecessor SavedState::adopt(shm::Descriptor kept) {
  Predecessor predecessor;
  if (!kept.valid()) return predecessor;
  auto file = StateFile::adopt(std::move(kept));
  auto decoded = file ? file->read(state_format().version) : Result<Decoded>(fail(file.error()));
  const Status understood = decoded ? check_protocol(decoded->state, state_format()) : decoded.error();
  if (!understood.ok()) {
    predecessor.speaks_alike = !decoded;
    predecessor.why_lost = fmt::format(
        "the daemon was restarted and cannot {}: {}",
        decoded ? "take its predecessor's jobs over" : "read its predecessor's state", understood.message());
    MUSTER_LOG(kError, "supervisor", "{}; its jobs are ended", predecessor.why_lost);
    return predecessor;
  }
  file_ = *std::move(file);
  state_ = std::move(decoded->state);
  read_version_ = decoded->version;
  predecessor.understood = true;
  predecessor.jobs = std::exchange(state_.jobs, {});
  return predecessor;
}

void SavedState::begin_instance() {
  state_.upgrade_ns = 0;
  ++state_.instance;
}

void SavedState::save(std::vector<SavedJob> jobs, bool managers_socket_stood) {
  state_.managers_socket_stood = managers_socket_stood;
  state_.jobs = std::move(jobs);
  const Status written = file_.write(state_, state_format());
  state_.jobs.clear();
  if (!written.ok())
    MUSTER_LOG(kError, "supervisor", "{}; a restart would find what was before", written.message());
}

}  // namespace muster::supervisor
