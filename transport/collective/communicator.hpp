// The communicator seam: one group's collectives, enqueued on the streams of its local members. Backends:
// loopback (all members in this address space), later nccl and host groups over endpoints.
// tests/transport/communicator_conformance.hpp is the suite.
//
// Order of one launch.
//   1. On a host device nothing runs on the members' streams when a collective is launched, and nothing is
//      launched behind it until it has ended. So all of it may run on the stream of one member.
//   2. On other devices a member's earlier work may lie on its stream. The member's part comes behind it.
//   3. The first member's stream ends the step. What the launch puts on other streams is over before what it
//      puts on that one, also if the launch fails.
#pragma once

#include "api/base/collective.hpp"
#include "kernels/device/device.hpp"
#include "transport/collective/step_outcome.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace muster::transport {

// What a member that lives here brings into a launch.
struct LocalMember {
  const Share* share = nullptr;
  device::Stream* stream = nullptr;  // of its device
};

// Owns    its links. Thread  one issuing thread at a time.
// Bound   ranks() fixed at creation; everything is connected and allocated then.
// Fails   launch: kBadArgument for what validate() refuses and for members that are missing or doubled, kBusy
//         when a stream is full. Later, and until the step has ended, by its StepOutcome.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int32_t ranks() const noexcept = 0;
  // Enqueues one collective of all local members. Each share has passed check_share() for the collective, and
  // where they agree pair by pair their edges match. `collective`, the shares, the streams and `outcome` live
  // until the step has ended; `members` is looked at during the call alone.
  virtual Status launch(const Collective& collective, std::span<const LocalMember> members,
                        StepOutcome& outcome) = 0;
};

// Makes the communicator of a group of so many ranks.
using CommunicatorFactory = std::function<Result<std::unique_ptr<Communicator>>(std::int32_t ranks)>;

}  // namespace muster::transport
