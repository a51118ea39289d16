// StateFile: the memory file with a supervisor's state. It outlives the supervisor, because the service
// manager keeps it.
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/supervisor/jobs/state.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace muster::supervisor {

// It has two slots, written in turns. If a supervisor is killed in the middle of a write, the former state is
// still whole.
//
// Owns    the memory file.
// Thread  a value; one at a time. One process writes.
// Bound   kStateBytesMax a slot, of which only what is written takes memory.
// Fails   create, write: kNoResource. adopt, read: kProtocol (no state file, or no whole state), kVersion.
class StateFile {
 public:
  static Result<StateFile> create();
  // Takes over a predecessor's file.
  static Result<StateFile> adopt(shm::Descriptor memory);

  // Reads the last whole state; later writes continue its sequence.
  Result<Decoded> read(std::uint32_t reader);
  Status write(const State& state, const State::Format& format);

  const shm::Descriptor& descriptor() const { return memory_; }

 private:
  explicit StateFile(shm::Descriptor memory) : memory_(std::move(memory)) {}
  Result<std::vector<std::byte>> read_slot(std::uint64_t slot) const;

  shm::Descriptor memory_;
  std::uint64_t sequence_ = 0;  // of the last write; its slot is sequence % 2
};

}  // namespace muster::supervisor
