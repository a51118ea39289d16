// The factory seam: makes the communicators of groups, and carries out their work outside the engine's
// workers. Factories: loopback for groups of one node, span for groups of several; later nccl. A job has
// several, of which each group gets the first that takes it.
//
// A step that goes on outside holds its StepOutcome. Idle workers call progress() while steps are in flight;
// before they sleep they arm the factories, whose descriptors then wake them.
#pragma once

#include "api/base/result.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/collective/job_links.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace muster::transport {

// Owns    what its communicators share. They end before it; the devices outlive it.
// Thread  use, open: one at a time, as Communicator::launch. progress, arm: any, several at once, never under
//         the engine lock. All else: any.
// Bound   progress: never waits, neither for a peer nor for another caller.
// Fails   open: kNoResource, kBadArgument, kUnsupported.
class CommunicatorFactory {
 public:
  // The devices of a group's members on this node, in the order of their index in the group.
  using Devices = std::span<device::Device* const>;

  virtual ~CommunicatorFactory() = default;
  // `wake` makes an idle worker call progress(). Called once, before open().
  virtual void use(std::function<void()> /*wake*/) {}
  // Whether open() makes a communicator for such a group on such devices.
  virtual bool takes(const Span& span, Devices devices) const = 0;
  virtual Result<std::unique_ptr<Communicator>> open(const Span& span, Devices devices) = 0;

  // Moves all that can be moved, and releases steps that have ended. Returns how much it has done.
  virtual std::size_t progress() { return 0; }
  // False: progress() has something to do. True: descriptor() becomes readable once it has.
  virtual bool arm() { return true; }
  // -1: it does all its work on the workers.
  virtual int descriptor() const { return -1; }
};

// The factories of one job, in the order in which a group is offered to them.
using Factories = std::vector<std::shared_ptr<CommunicatorFactory>>;

// How a job moves data on one node.
struct JobTransport {
  Factories factories;
  std::shared_ptr<JobLinks> links;  // nullptr: the job has no network
};

// Opens the group in the first factory that takes it. kUnsupported: none does.
inline Result<std::unique_ptr<Communicator>> open_in(const Factories& factories, const Span& span,
                                                     CommunicatorFactory::Devices devices) {
  for (const auto& factory : factories)
    if (factory->takes(span, devices)) return factory->open(span, devices);
  return fail(Code::kUnsupported, "a group of {} nodes needs a network", span.nodes.size());
}

}  // namespace muster::transport
