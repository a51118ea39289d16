// The communicator seam: one group's collectives, enqueued on device streams. Backends: loopback (all members
// in this address space), later nccl and host groups over endpoints.
// tests/transport/communicator_conformance.hpp is the suite.
#pragma once

#include "api/base/collective.hpp"
#include "kernels/device/device.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace muster::transport {

// Owns    its links. Thread  one issuing thread at a time.
// Bound   ranks() fixed at creation; everything is connected and allocated then.
// Fails   launch: kBadArgument for what validate() refuses and for members that are missing or doubled, kBusy
//         when the stream is full.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int32_t ranks() const noexcept = 0;
  // Enqueues one collective of all local members on `stream`. Each share has passed check_share() for the
  // collective, and where they agree pair by pair their edges match. `collective` and the shares must live
  // until the work has finished. Members' earlier work must have finished, or be on the same stream.
  virtual Status launch(device::Stream& stream, const Collective& collective,
                        std::span<const Share* const> shares) = 0;
};

// All members in this address space, on a host device: sources are read in place, targets written in place
// (decision D4). Chunks of a collective are parts of one task.
Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks);

}  // namespace muster::transport
