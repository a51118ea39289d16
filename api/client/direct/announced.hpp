// Announced: what a member says when it comes to an operation, or sends a message: the words of a slot.
#pragma once

#include "api/base/signature.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace muster::client {

// What stands beside the signature, a type for each kind. Which kind it is follows from operation and
// algorithm, on which all agree before anybody looks at it. All zero: nothing is said. Of Algorithm::kSmall,
// and of a short message, it is the payload itself.

// Operations that agree pair by pair.
struct SaidBalance {
  Hash128 balance;
};
// Algorithm::kFaces: entries of its list of sends; 1: it waits for those who read its faces where they are.
struct SaidFaces {
  Hash128 balance;
  std::uint32_t sends = 0;
  std::uint32_t in_place = 0;
};
// REDUCE_SCATTER: 1: the blocks lie where the table of offsets behind the slot's header says.
struct SaidTable {
  std::uint8_t table = 0;
};
// Algorithm::kSliced: PayloadLocation of the stage into which it will reduce its slices.
struct SaidStage {
  std::uint64_t location = 0;
};
// Algorithm::kRead: 1: its target is its source, so it waits for those who read each chunk.
struct SaidInPlace {
  std::uint8_t in_place = 0;
};

// This process's copy of a slot but for its position, which is written last and read first. Whoever reads a
// slot finds out afterwards whether it still holds what it was.
struct Announced {
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
