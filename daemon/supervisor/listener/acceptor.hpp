// Acceptor: takes connections at the entrance, and keeps the entrance open.
#pragma once

#include "api/shm/peer.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/listener/entrance.hpp"

#include <functional>
#include <set>
#include <string>

namespace muster::supervisor {

// Owns    the entrance, the watches on its sockets, and one descriptor in reserve.
// Thread  the supervisor's loop.
// Bound   the kernel's accept queues. It looks after the entrance once in Entrance::kLookPeriod.
// Fails   never. If no descriptor is free, it gives up the one in reserve, to tell a client so.
class Acceptor {
 public:
  using Accepted = std::function<void(shm::Descriptor, shm::PeerIdentity, Door)>;

  Acceptor(control::Loop& loop, const Clock& clock, DescriptorStore& store, Entrance entrance,
           Accepted accepted);

  // Takes connections and looks after the entrance from now on.
  void start() { look(); }
  // Keeps the entrance's descriptors. Takes their names out of `known`, the names that a predecessor kept.
  void keep(std::set<std::string>& known) { entrance_.keep_in(store_, known); }
  void believe_managers_stood() { entrance_.believe_managers_stood(); }
  const Entrance& entrance() const { return entrance_; }

 private:
  void look();
  void watch(control::Loop::Watch& watch, const ListenSocket* socket, Door door);
  void accept(Door door);
  void refuse_for_descriptors(Door door);

  control::Loop& loop_;
  const Clock& clock_;
  DescriptorStore& store_;
  Entrance entrance_;
  Accepted accepted_;
  control::Loop::Watch ranks_watch_ = 0;
  control::Loop::Watch control_watch_ = 0;
  control::Loop::Watch managers_watch_ = 0;
  shm::Descriptor reserve_;
};

}  // namespace muster::supervisor
