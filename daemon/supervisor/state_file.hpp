// StateFile: the memory file that a supervisor's state lies in, so that it outlives the supervisor in the
// hands of the service manager.
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/supervisor/state.hpp"

#include <cstdint>

namespace muster::supervisor {

// Two slots, written in turns: a supervisor that is killed in the middle of a write leaves the former state
// whole.
//
// Owns    the memory file.
// Thread  a value; one at a time. One process writes.
// Bound   kStateBytesMax a slot, of which only what is written takes memory.
// Fails   create, write: kNoResource. adopt, read: kProtocol (no such file, nothing whole in it), kVersion.
class StateFile {
 public:
  static Result<StateFile> create();
  // Of a predecessor.
  static Result<StateFile> adopt(shm::Descriptor memory);

  // The last state that was written whole; further writes follow on it.
  Result<Decoded> read(std::uint32_t reader);
  Status write(const State& state, const StateFormat& format);

  const shm::Descriptor& descriptor() const { return memory_; }

 private:
  explicit StateFile(shm::Descriptor memory) : memory_(std::move(memory)) {}
  Result<std::vector<std::byte>> read_slot(std::uint64_t slot) const;

  shm::Descriptor memory_;
  std::uint64_t sequence_ = 0;  // of the last write; its slot is sequence % 2
};

}  // namespace muster::supervisor
