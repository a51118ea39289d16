// SupervisorChannel: an engine's channel to its supervisor. No report is lost while the supervisor is slow to
// read.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"

#include <deque>
#include <functional>
#include <utility>

namespace muster::engine {

// Owns    the socket, its watch, and the packets that are not sent yet.
// Thread  the loop's.
// Bound   at most one packet for each client, and two for each node. They wait here, in order, while there is
//         no room, and no command is read meanwhile. A departure that the supervisor misses would leave the
//         rank taken for good.
// Fails   receive: as control::receive_packet().
class SupervisorChannel {
 public:
  SupervisorChannel(control::Loop& loop, shm::Descriptor socket) : loop_(loop), socket_(std::move(socket)) {}

  // From now on the loop calls `on_readable` while there is something to read.
  void listen(std::function<void()> on_readable);
  Result<control::Packet> receive() { return control::receive_packet(socket_); }
  // The supervisor is gone.
  void close();
  bool is_open() const { return socket_.valid(); }

  void tell(control::Packet packet);
  // Sends the packets that have waited, if there is room by now.
  void tell_rest();
  // Sends the packet now, or fails.
  Status tell_at_once(const control::Packet& packet);

 private:
  void watch();

  control::Loop& loop_;
  shm::Descriptor socket_;
  std::function<void()> on_readable_;
  control::Loop::Watch watch_ = 0;
  std::deque<control::Packet> untold_;
};

}  // namespace muster::engine
