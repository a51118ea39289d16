// Phases: how far the members of a group have come within an operation that meets more than once, as one
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

  // This member has come to that phase of its operation.
  void set(At at, std::uint64_t phase);
  // Until all members have.
  Waited await(At at, std::uint64_t phase, WaitPolicy& policy);
  // Until nobody reads any more what this member gave to operation `at`, or to its phases up to that one: the
  // others have come to the phase, or have left the operation in another way.
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
