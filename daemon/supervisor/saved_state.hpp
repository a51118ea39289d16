// SavedState: the state that this supervisor leaves to a successor, and what it found of a predecessor's.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/state_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the state file; in the state all but the jobs, which the caller has.
// Thread  the supervisor's loop.
// Bound   kStateBytesMax.
// Fails   create: kNoResource. save: it is logged, and a successor finds what was before.
class SavedState {
 public:
  struct Predecessor {
    bool understood = false;  // its state was read, and its engines can be spoken with
    std::vector<SavedJob> jobs;
    // What engines hear that no job of the state names.
    std::string why_lost = "the daemon was restarted, and no state of its predecessor came with the job";
    bool speaks_alike = true;  // its engines speak as this program does, as far as is known
  };

  // `epoch`: of the first supervisor at this place.
  static Result<SavedState> create(std::uint64_t epoch, Instant now);

  // Reads a predecessor's file, and goes on with it if that succeeds. An invalid descriptor: none was kept.
  Predecessor adopt(shm::Descriptor file);
  // The next supervisor at this place begins.
  void begin_instance();
  // This one gives way on purpose, or not after all (0).
  void set_upgrade(Instant since) { state_.upgrade_ns = since.count(); }
  void save(std::vector<SavedJob> jobs, bool managers_socket_stood);

  // Without jobs.
  const State& state() const { return state_; }
  // The version of the predecessor's state; 0: there was none.
  std::uint32_t read_version() const { return read_version_; }
  const shm::Descriptor& file() const { return file_.descriptor(); }

 private:
  SavedState(StateFile file, State state) : file_(std::move(file)), state_(std::move(state)) {}

  StateFile file_;
  State state_;
  std::uint32_t read_version_ = 0;
};

}  // namespace muster::supervisor
