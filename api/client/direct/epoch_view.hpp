// EpochView: the epochs of a group's direct place, as one member sees them (decision D18; the rules are in
// api/shm/direct.hpp).
#pragma once

#include "api/client/direct/peer.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// An operation, or a message of a pair: where it stands.
struct At {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
};

// Owns    in which epoch this member stands, and the word by which the others see it.
// Thread  the session's.
// Bound   kEpochsKept ends of epochs that were used are known exactly; an older epoch has ended for all.
// Fails   never.
class EpochView {
 public:
  // The group's line of the group page, and the own word. `peers` outlive it.
  EpochView(const shm::GroupLine* line, std::uint64_t* own, const std::vector<Peer>& peers);

  std::uint64_t epoch() const { return epoch_; }
  // Positions of the epoch begin above it.
  std::uint64_t base() const { return base_; }

  // The member stands in that epoch from now on. What it writes afterwards comes after it has said so.
  void move_to(std::uint64_t epoch, std::uint64_t base);

  bool ended() const { return has_ended(epoch_); }
  // No operation may begin: the epoch has ended, or a member is named absent.
  bool closed() const { return ended() || shm::Untrusted<std::int32_t>(&line_->absence).load() != 0; }

  // What an end means for an operation at which this member has arrived.
  enum class Fate : std::uint8_t {
    kGoesOn,  // there is none, or all members had arrived before it
    kEnded,
    kUnknown,  // the engine still counts; see record_of()
  };
  Fate fate_of(At at) const;
  // Where the engine says what the end of an epoch means; nullptr: it has no record, or none any more.
  const shm::EndedEpoch* record_of(std::uint64_t epoch) const;

  // A message to or from member i can no longer pass: the epoch has ended, or that member will not come.
  bool parted_from(std::uint32_t i) const;
  // Member i is gone, or stands in a later epoch: memory that it gave in this epoch may be written again.
  bool has_left(std::uint32_t i) const { return has_left(i, epoch_); }
  // Member i waits no more for those who read its memory for that operation: it is gone, or has moved on, or
  // is told of the end wherever it is. What was read of its memory before this was asked is what it gave, if
  // this says no.
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
