// SavedState: the state that this supervisor leaves to a successor, and the one that it read of a
// predecessor.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/takeover/state_file.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Owns    the state file, and the state without its jobs, which the caller has.
// Thread  the supervisor's loop.
// Bound   kStateBytesMax.
// Fails   create: kNoResource. save: logged; a successor then finds the former state.
class SavedState {
 public:
  struct Predecessor {
    bool understood = false;  // its state was read, and this program speaks its engines' protocol
    std::vector<SavedJob> jobs;
    // The reason for engines whose job is not in the state.
    std::string why_lost = "the daemon was restarted, and no state of its predecessor came with the job";
    bool speaks_alike = true;  // as far as is known, its engines speak this program's protocol
  };

  // `epoch`: of the first supervisor at this place.
  static Result<SavedState> create(std::uint64_t epoch, Instant now);

  // Reads a predecessor's file, and writes to it from now on if that succeeds. Invalid descriptor: none kept.
  Predecessor adopt(shm::Descriptor file);
  // Counts this supervisor as the next one at this place.
  void begin_instance();
  // This supervisor gives way on purpose; 0: it goes on after all.
  void set_upgrade(Instant since) { state_.upgrade_ns = since.count(); }
  void save(std::vector<SavedJob> jobs, bool managers_socket_stood);

  // The state, without jobs.
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
