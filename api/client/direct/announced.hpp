// Announced: a member's announcement in its slot, when it arrives at an operation or sends a message.
#pragma once

#include "api/base/collective/signature.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace muster::client {

// This process's copy of a slot without the position, which is written last and read first. A reader checks
// afterwards whether the slot was overwritten while it read.
struct Announced {
  // The bytes of a slot behind the signature. Operation and algorithm determine which of the following
  // structs they hold. Members compare signatures before they read these bytes. If all are zero, the member
  // announces nothing. With Algorithm::kSmall and kTurns, and in a short message, these bytes are the payload
  // itself.
  //
  // Operations that agree pair by pair.
  struct Balance {
    Hash128 balance;
  };

  // Algorithm::kFaces. `sends`: entries in the member's list of sends. `in_place` 1: peers read its faces in
  // place, and it waits until they have.
  struct Faces {
    Hash128 balance;
    std::uint32_t sends = 0;
    std::uint32_t in_place = 0;
  };

  // REDUCE_SCATTER. 1: a table of the blocks' offsets stands behind the slot's header.
  struct Table {
    std::uint8_t table = 0;
  };

  // Blocks in pieces. 1: the member's contribution lies in its source, in the pieces that all agree on.
  struct Pieces {
    std::uint8_t in_source = 0;
  };

  // Algorithm::kSliced: packed PayloadLocation of the stage into which the member reduces its slices.
  struct Stage {
    std::uint64_t location = 0;
  };

  // Algorithm::kRead. 1: the member's target is its source, so it waits until all have read each chunk.
  struct InPlace {
    std::uint8_t in_place = 0;
  };

  Hash128 common;
  std::uint64_t location_bits = 0;
  alignas(32) std::byte inside[shm::kInlineBytes] = {};

  shm::PayloadLocation location() const { return shm::unpack_location(location_bits); }
  template<class Said>
  void say(const Said& said) {
    static_assert(std::is_trivially_copyable_v<Said> && sizeof(Said) <= shm::kInlineBytes);
    std::memcpy(inside, &said, sizeof said);
  }
  template<class Said>
  Said said() const {
    static_assert(std::is_trivially_copyable_v<Said> && sizeof(Said) <= shm::kInlineBytes);
    Said said;
    std::memcpy(&said, inside, sizeof said);
    return said;
  }

  void write(shm::DirectSlot* slot) const {
    shm::Published<std::uint64_t>(&slot->common[0]).store(common.low);
    shm::Published<std::uint64_t>(&slot->common[1]).store(common.high);
    shm::Published<std::uint64_t>(&slot->location).store(location_bits);
    std::memcpy(slot->payload, inside, sizeof inside);
  }
  void read(const shm::DirectSlot& slot) {
    common.low = shm::Untrusted<std::uint64_t>(&slot.common[0]).load();
    common.high = shm::Untrusted<std::uint64_t>(&slot.common[1]).load();
    location_bits = shm::Untrusted<std::uint64_t>(&slot.location).load();
    std::memcpy(inside, slot.payload, sizeof inside);
  }
};

}  // namespace muster::client
