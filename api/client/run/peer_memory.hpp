// PeerMemory: the memory of the direct path that this process does not have yet, from the engine.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/direct/memory.hpp"
#include "api/client/submit/buffers.hpp"
#include "api/shm/control.hpp"

#include <cstdint>

namespace muster::client {

// Owns    a buffer of the session, for the latest scratch.
// Thread  the session's.
// Bound   one question a call; scratch() grows its buffer to the largest one asked for.
// Fails   as Connection::ask and Buffers::alloc; PROTOCOL for memory that could still shrink.
class PeerMemory final : public DirectMemory::Registrar {
 public:
  // Both outlive it.
  PeerMemory(Connection& connection, Buffers& buffers) : connection_(connection), buffers_(buffers) {}

  Result<shm::Mapping> direct_segment(std::int32_t rank) override {
    return ask(shm::MessageKind::kPeerDirect, rank, 0);
  }
  Result<shm::Mapping> arena_segment(std::int32_t rank, std::uint32_t segment) override {
    return ask(shm::MessageKind::kPeerArena, rank, segment);
  }
  Result<Scratch> scratch(std::uint64_t bytes) override;

 private:
  Result<shm::Mapping> ask(shm::MessageKind kind, std::int32_t rank, std::uint32_t segment);

  Connection& connection_;
  Buffers& buffers_;
  muster_buffer buffer_ = 0;  // of `scratch_`
  std::uint64_t bytes_ = 0;
  Scratch scratch_;
};

}  // namespace muster::client
