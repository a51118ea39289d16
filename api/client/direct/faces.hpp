// Faces: the neighbour exchange on the direct path. Each member arrives with a list of its sends; each
// receive is looked up in the list of its peer.
#pragma once

#include "api/client/direct/payloads.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::client {

// Owns    nothing; lives as long as one operation.
// Thread  the session's.
// Bound   the sends that one message to the engine holds. Their list and the packed faces fit into a stage.
// Fails   run: see there.
class Faces {
 public:
  // One send in such a list. `dims` sizes, then `dims` strides of its view follow (std::int64_t), then the
  // next entry. It lies in shared memory, so a reader copies it and checks the copy.
  struct Entry {
    std::int32_t peer = 0;  // index of the receiver
    std::uint32_t tag = 0;
    std::uint64_t location = 0;  // PayloadLocation, packed. kArena: of the face's first byte. kStage, kSlot:
                                 // of the list; the face's elements are packed from byte `offset` of it on
    std::uint64_t offset = 0;
    std::uint64_t count = 0;  // elements
    std::int32_t dims = 0;    // kArena: of the view; else 0
    std::uint32_t reserved = 0;
  };

  Faces(const DirectPlan& plan, Payloads& payloads, DirectMemory& memory)
      : plan_(plan), channel_(*plan.channel), payloads_(payloads), memory_(memory) {}

  // Runs the whole operation. kInterrupted: it has not begun, or the group does not know yet. kCorrupt: a
  // peer's list or face is invalid. kBroken: the epoch has ended, or a peer's list or face was overwritten.
  [[nodiscard]] Outcome run(WaitPolicy& policy);

 private:
  Outcome prepare();
  shm::PayloadLocation announce(Announced* announced);
  Announced::Faces said_by(std::uint32_t i) const {
    return channel_.arrivals().of(i).said<Announced::Faces>();
  }
  Outcome receive();
  // Peers read this member's faces in place.
  bool must_await_readers() const { return !packed_ && plan_.given_bytes > 0; }
  void fill(std::byte* to, shm::PayloadLocation location);
  Outcome take(const Face& to);
  const std::byte* list_of(std::uint32_t i, std::uint64_t* bytes) const;
  // Whether all that was read of the member's list, and of the faces packed behind it, is valid.
  bool intact(std::uint32_t from) const;
  // `view`: the sizes and strides that follow the entry.
  Outcome copy(const Face& to, std::uint32_t from, const Entry& entry, const std::byte* view);
  Outcome copy_in_place(const Face& to, std::uint32_t from, const Entry& entry, const std::byte* view);

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  DirectMemory& memory_;
  std::size_t list_bytes_ = 0;  // of this member's list
  bool packed_ = false;
  bool staged_ = false;
};
static_assert(sizeof(Faces::Entry) == 40);
constexpr std::size_t entry_bytes(std::int32_t dims) {
  return sizeof(Faces::Entry) + 2 * static_cast<std::size_t>(dims) * sizeof(std::int64_t);
}

}  // namespace muster::client
