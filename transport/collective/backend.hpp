// The backend seam: makes the communicators of a job, and moves what they do outside the engine's workers.
// Backends: loopback; later the network's endpoints and nccl. `transport/faulty` decorates any of them.
//
// A step that goes on outside holds its StepOutcome. Idle workers call progress() while steps are in flight;
// before they sleep they arm the backend, whose descriptor then wakes them.
#pragma once

#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace muster::transport {

// Owns    its connections. Communicators refer to it, and end before it.
// Thread  open: one at a time. progress, arm: any, several at once, never under the engine lock.
// Bound   progress: never waits, neither for a peer nor for another caller.
// Fails   open: kNoResource, kBadArgument.
class Backend {
 public:
  virtual ~Backend() = default;
  // The communicator of a group of so many ranks.
  virtual Result<std::unique_ptr<Communicator>> open(std::int32_t ranks) = 0;
  // Moves what can be moved, and releases steps that have ended. Returns how much it has done.
  virtual std::size_t progress() { return 0; }
  // False: progress() has something to do. True: descriptor() becomes readable once it has.
  virtual bool arm() { return true; }
  // -1: it does all its work on the workers.
  virtual int descriptor() const { return -1; }
};

}  // namespace muster::transport
