// Disagreements: how members of a direct operation differ, as the engine has found. The first member that
// asked may be gone when the others ask.
#pragma once

#include "api/base/result.hpp"
#include "daemon/engine/direct/direct_records.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::engine {

// Owns    the latest findings of each group.
// Thread  under the engine's lock.
// Bound   kKept findings a group.
// Fails   never.
class Disagreements {
 public:
  static constexpr std::size_t kKept = 16;

  explicit Disagreements(std::size_t groups) : groups_(groups) {}

  // nullptr: nothing yet.
  const Status* find(const DirectQuestion& question) const;
  void remember(const DirectQuestion& question, const Status& what);
  void forget(GroupId group) { groups_[group.value].clear(); }

 private:
  struct Found {
    std::uint64_t position = 0;
    std::uint32_t sender = 0;  // of a pair; equal indices: all members
    std::uint32_t receiver = 0;
    Status what;
  };
  static Found about(const DirectQuestion& question);

  std::vector<std::vector<Found>> groups_;
};

}  // namespace muster::engine
