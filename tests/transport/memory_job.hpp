// A job of several nodes in the memory of one process and without a network: the links between its engines,
// and the communicators of its groups. Its packets take the time that a test gives them.
//
// It is no more careful than the seams ask for. Packets from one node to another keep their order, while
// those of different pairs come in any order. A collective moves in one step, by the arithmetic of loopback,
// once all of its nodes have agreed; an EXCHANGE pair by pair.
#pragma once

#include "api/base/clock.hpp"
#include "transport/collective/communicator_factory.hpp"
#include "transport/collective/job_links.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace muster::transport::test {

// Drawn from the seed.
struct JobFaults {
  std::uint64_t seed = 1;
  Nanos delay_max{0};               // of each packet
  std::uint32_t breaks_one_in = 0;  // of so many packets one breaks the link instead; 0: none
};

// Owns    the packets under way. The engines' transports share it, and may outlive it.
// Thread  any: one mutex guards all.
// Bound   none: a test sends as much as it wants.
// Fails   never.
class MemoryJob {
 public:
  // The clock outlives it.
  MemoryJob(std::uint32_t nodes, const Clock& clock, JobFaults faults = {});

  // The transport of that node's engine. An earlier one of the node is lost by that.
  JobTransport open(NodeIndex node);
  // When the next packet comes; nothing: none is under way.
  std::optional<Instant> next() const;

  class State;  // what the nodes share

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace muster::transport::test
