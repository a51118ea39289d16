// Acceptor: accepts connections at the listeners, and keeps the listeners open.
#pragma once

#include "api/shm/peer.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/listener/listeners.hpp"

#include <array>
#include <functional>
#include <set>
#include <string>

namespace muster::supervisor {

// Owns    the listeners, the watches on their sockets, and one descriptor in reserve.
// Thread  the supervisor's loop.
// Bound   the kernel's accept queues. It looks after the listeners once in Listeners::kLookPeriod.
// Fails   never. If no descriptor is free, it gives up the one in reserve, to tell a client so.
class Acceptor {
 public:
  using Accepted = std::function<void(shm::Descriptor, shm::PeerIdentity, Door)>;

  Acceptor(control::Loop& loop, const Clock& clock, DescriptorStore& store, Listeners listeners,
           Accepted accepted);

  // Accepts connections and looks after the listeners from now on.
  void start() { look(); }
  // Keeps the descriptors of the listeners. Takes their names out of `known`, the names that a predecessor
  // kept.
  void keep(std::set<std::string>& known) { listeners_.keep_in(store_, known); }
  void believe_managers_stood() { listeners_.believe_managers_stood(); }
  const Listeners& listeners() const { return listeners_; }

 private:
  void look();
  void watch(control::Loop::Watch& watch, const ListenSocket* socket, Door door);
  void accept(Door door);
  void refuse_for_descriptors(Door door);

  control::Loop& loop_;
  const Clock& clock_;
  DescriptorStore& store_;
  Listeners listeners_;
  Accepted accepted_;
  struct Watches {
    control::Loop::Watch socket = 0;
    control::Loop::Watch managers = 0;
  };
  std::array<Watches, Listeners::kDoors.size()> watches_{};  // in the order of kDoors
  shm::Descriptor reserve_;
};

}  // namespace muster::supervisor
