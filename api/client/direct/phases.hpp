// Phases: how far the members of a group have come within an operation that has several meetings, as one
// member sees it.
#pragma once

#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/peer.hpp"
#include "api/client/direct/waiter.hpp"

#include <cstdint>
#include <vector>

namespace muster::client {

// Owns    this member's progress, a word that its peers read.
// Thread  the session's.
// Bound   kPhaseLast phases of an operation.
// Fails   never; a wait ends with a Waited.
class Phases {
 public:
  // `own`: the progress of this member's region. The rest outlives it.
  Phases(std::uint64_t group, std::uint64_t* own, const std::vector<Peer>& peers, const EpochView& view,
         Waiter& waiter)
      : group_(group), own_(own), peers_(peers), view_(view), waiter_(waiter) {}

  // Publishes that this member has reached that phase of its operation.
  void set(At at, std::uint64_t phase);
  // Waits until all members have reached it.
  Waited await(At at, std::uint64_t phase, WaitPolicy& policy);
  // Waits until no peer reads any more the data that this member gave to operation `at`, up to that phase.
  // Each of the others has then reached the phase, or has left the operation in another way.
  Waited await_readers(At at, std::uint64_t phase, WaitPolicy& policy);

 private:
  Waited await_of(std::uint32_t i, At at, std::uint64_t phase, WaitPolicy& policy);

  std::uint64_t group_;
  std::uint64_t* own_;
  const std::vector<Peer>& peers_;
  const EpochView& view_;
  Waiter& waiter_;
};

}  // namespace muster::client
