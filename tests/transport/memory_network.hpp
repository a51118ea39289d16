// Networks in the memory of one process, with the faults that a test wants. They are harsher than libraries
// have to be, within the rules of endpoint.hpp:
// - The peer's progress() does everything: it takes messages, and carries out writes, reads and flushes.
// - Up to kMemoryKept bytes are copied out when a send or put begins, which ends then. Longer ones end when
//   the peer has them. The send of a message that is longer than its receive's memory ends with its endpoint.
// - A receive is matched by its tag and its sender's index, as in the libraries. So what a closed endpoint or
//   a lost node has sent, and nobody has received, goes to the next endpoint to that index.
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::transport::test {

constexpr std::size_t kMemoryKept = 8 << 10;

// Faults drawn from the seed; each rate is in percent. "Calls" are calls of progress().
struct MemoryFaults {
  std::uint64_t seed = 0;
  std::uint32_t delay_percent = 0;    // of packets to a peer: they come some calls later
  std::uint32_t reorder_percent = 0;  // of packets to a peer: they overtake all that they may overtake
  std::uint32_t late_percent = 0;    // of operations: done() comes some calls later, so also in another order
  std::uint32_t refuse_percent = 0;  // of operations: kNoResource instead of a beginning
  std::uint32_t calls_max = 8;       // "some": 1 to so many beyond the next
  // Receives of fewer bytes that are open at their endpoint's end are never reported. The library keeps their
  // memory until its network ends.
  std::size_t keeps_below = 0;
};

class MemoryLinks;

// Makes the networks of the nodes, and breaks the paths between them.
//
// Owns    what the nodes share, together with their networks: these may outlive it.
// Thread  any. Each network is driven by one thread, as Network says, and these may run at the same time.
//         Driven from one thread, a seed gives the same run every time.
// Bound   none: a test begins as much as it wants.
// Fails   never.
class MemoryHub {
 public:
  explicit MemoryHub(MemoryFaults faults = {});

  // A network of that node. If the node has one, that one is lost first, as if the node were started again.
  std::unique_ptr<Network> open(NodeIndex node);
  // Drops all packets under way from and to the node. Its peers' endpoints to it fail with kPeerLost in a
  // call of progress(), and so do its own if a caller still drives them. Destroying a network has the same
  // effect.
  void lose(NodeIndex node);
  // Drops all packets from one to the other, present and later ones, without an error. Long messages, reads
  // and flushes whose answer would travel that way stay open until their endpoint ends. Whatever this
  // endpoint sends later is dropped too, so no message follows a dropped one.
  void cut(NodeIndex from, NodeIndex to);
  // Nothing passes in either direction, and nothing is dropped. Neither node gets an error.
  void hold(NodeIndex one, NodeIndex other);
  // Both directions are open again. Endpoints that have lost something stay silent; new ones do not.
  void restore(NodeIndex one, NodeIndex other);

  struct Unmatched {
    std::size_t messages = 0;  // under way, or arrived and not received
    std::size_t receives = 0;  // for which no message has come
  };
  // The unmatched messages and receives from one node to the other.
  Unmatched unmatched(NodeIndex from, NodeIndex to);

 private:
  const std::shared_ptr<MemoryLinks> links_;
};

// Networks of the nodes 0 … count - 1.
std::vector<std::unique_ptr<Network>> memory_networks(std::uint32_t count, MemoryFaults faults = {});

}  // namespace muster::transport::test
