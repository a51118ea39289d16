// EpochView: the epochs of a group's direct place, as one member sees them (decision D18; the rules are in
// api/shm/direct.hpp).
#pragma once

#include "api/client/direct/peer.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// The epoch and position of an operation, or of a message between two members.
struct At {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
};

// Owns    the epoch in which this member stands, and the word in which it publishes that epoch.
// Thread  the session's.
// Bound   records of the last kEpochsKept ended epochs with an arrival. Operations of older ones have failed.
// Fails   never.
class EpochView {
 public:
  // `line`: the group's, on the group page. `own`: MemberRegion::epoch of this member. `peers` outlive it.
  EpochView(const shm::GroupLine* line, std::uint64_t* own, const std::vector<Peer>& peers);

  std::uint64_t epoch() const { return epoch_; }
  // Positions of the epoch begin above it.
  std::uint64_t base() const { return base_; }

  // Moves to that epoch and publishes it. Later stores of this thread become visible after it.
  void move_to(std::uint64_t epoch, std::uint64_t base);

  bool ended() const { return has_ended(epoch_); }
  // No operation may begin: the epoch has ended, or a member is named absent.
  bool closed() const { return ended() || shm::Untrusted<std::int32_t>(&line_->absence).load() != 0; }

  // Whether an operation goes on at which this member has arrived.
  enum class Fate : std::uint8_t {
    kGoesOn,  // its epoch has not ended, or all members had arrived before the end
    kEnded,
    kUnknown,  // the engine still counts; see record_of()
  };
  Fate fate_of(At at) const;
  // The engine's record of an ended epoch; nullptr: there is none yet, or it is no longer kept.
  const shm::EndedEpoch* record_of(std::uint64_t epoch) const;

  // Whether no message with member i can pass: the epoch has ended, or a member is named absent and member i
  // has no client.
  bool parted_from(std::uint32_t i) const;
  // Whether the epoch has ended and member i is gone or stands in a later one. It may then overwrite memory
  // that it gave in this epoch.
  bool has_left(std::uint32_t i) const { return has_left(i, epoch_); }
  // Whether member i may no longer wait for those who read its memory for that operation. It is then gone,
  // has moved on, or the operation has failed. If not, what was read of its memory before the call is valid.
  bool let_go(std::uint32_t i, At at) const;

 private:
  bool has_ended(std::uint64_t epoch) const {
    return shm::Untrusted<std::uint64_t>(&line_->epoch).load_ordered() != epoch;
  }
  bool has_left(std::uint32_t i, std::uint64_t epoch) const;

  const shm::GroupLine* line_;
  std::uint64_t* own_;
  const std::vector<Peer>& peers_;
  std::uint64_t epoch_ = 0;
  std::uint64_t base_ = 0;
};

}  // namespace muster::client
