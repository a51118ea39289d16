// Announced: what a member says when it comes to an operation, or sends a message: the words of a slot.
#pragma once

#include "api/base/signature.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstdint>
#include <cstring>

namespace muster::client {

// This process's copy of a slot but for its position, which is written last and read first. Whoever reads a
// slot finds out afterwards whether it still holds what it was.
struct Announced {
  Hash128 common;
  std::uint64_t location_bits = 0;
  alignas(32) std::byte inside[shm::kInlineBytes] = {};

  shm::PayloadLocation location() const { return shm::unpack_location(location_bits); }

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
