// Faces: the neighbour exchange on the direct path. Each member arrives with a list of its sends; each
// receive is looked up in the list of its peer.
#pragma once

#include "api/client/direct/payloads.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// What a list has for one send. In shared memory: whoever reads it copies and checks.
struct FaceEntry {
  std::int32_t peer = 0;  // index of the receiver
  std::uint32_t tag = 0;
  std::uint64_t location = 0;  // PayloadLocation of the face's first byte; kStage or kSlot: its elements are
                               // packed from byte `offset` on
  std::uint64_t offset = 0;
  std::uint64_t count = 0;  // elements
  std::int32_t dims = 0;    // kArena: the view
  std::uint32_t reserved = 0;
  std::int64_t size[MUSTER_TENSOR_DIMS_MAX] = {};
  std::int64_t stride[MUSTER_TENSOR_DIMS_MAX] = {};
};

// Owns    nothing; lives as long as one operation.
// Thread  the session's.
// Bound   as many sends as a message to the engine holds; their list and what is packed fit into a stage.
// Fails   run: see there.
class Faces {
 public:
  Faces(const DirectPlan& plan, Payloads& payloads, DirectMemory& memory)
      : plan_(plan), channel_(*plan.channel), payloads_(payloads), memory_(memory) {}

  // The whole operation. kInterrupted: it has not begun, or the group does not know yet. kCorrupt for a list
  // that cannot be, kBroken for one that changed.
  [[nodiscard]] Outcome run(WaitPolicy& policy);

 private:
  Outcome prepare();
  shm::PayloadLocation announce(Announced* announced);
  SaidFaces said_by(std::uint32_t i) const { return channel_.arrivals().of(i).said<SaidFaces>(); }
  Outcome receive();
  // This member's faces are read where they are.
  bool must_await_readers() const { return !packed_ && plan_.given_bytes > 0; }
  void fill(std::byte* to, shm::PayloadLocation location);
  Outcome take(const Face& to);
  const std::byte* list_of(std::uint32_t i, std::uint64_t* bytes) const;
  // What was read of its list, and of what is packed behind it, is what it gave.
  bool intact(std::uint32_t from) const;
  Outcome copy(const Face& to, std::uint32_t from, const FaceEntry& entry);

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  DirectMemory& memory_;
  bool packed_ = false;
  bool staged_ = false;
};

}  // namespace muster::client
