// PeerHeartbeats: the heartbeats between this node and its peers. It sends and receives the datagrams, keeps
// the time of Liveness, and reports its decisions.
#pragma once

#include "daemon/control/link/heartbeat.hpp"
#include "daemon/control/link/udp.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/base/roster.hpp"
#include "daemon/supervisor/peers/liveness.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the socket for datagrams and the keys of heartbeats.
// Thread  the supervisor's loop.
// Bound   the members of the roster; kDatagramsATurn between two other events of the loop.
// Fails   open: as UdpSocket::open. Later faults are silence, which Liveness judges.
class PeerHeartbeats {
 public:
  static constexpr std::size_t kDatagramsATurn = 64;

  // Called on the loop's thread; they may call back into this object.
  struct Events {
    std::function<void(const std::string& peer)> suspect;                  // each period, as long as it is
    std::function<void(const std::string& peer, const Status& why)> lost;  // kPeerLost; once
  };

  // `roster` outlives this object.
  PeerHeartbeats(control::Loop& loop, const Clock& clock, const Roster& roster, Events events);
  ~PeerHeartbeats();
  PeerHeartbeats(const PeerHeartbeats&) = delete;
  PeerHeartbeats& operator=(const PeerHeartbeats&) = delete;

  // Takes datagrams at this node's host and that port, and begins to keep time.
  Status open(std::uint16_t port);
  // The peer is up: from now on it gets heartbeats and is watched, until it is lost. `link`: where the other
  // end of its connection is; a heartbeat that comes from elsewhere shows the way to answer.
  void begin(const std::string& peer, const control::Heartbeat::Keys& keys, control::SocketAddress link);
  // The peer is watched though it was never up. It gets no heartbeat, and its own are not understood.
  void expect(const std::string& peer);
  // Evidence that the peer lived at that time.
  void heard(const std::string& peer, Instant at);

  // Adds what is known of the peer to a report: `heard_ns`, `doubts`.
  void describe(const std::string& peer, control::Json& report) const;

 private:
  struct Channel {
    control::Heartbeat::Key key;  // of what this node sends
    control::HeartbeatReader reader;
    control::SocketAddress address;
    std::uint64_t sequence = 0;
  };

  std::uint32_t place_of(const std::string& node) const;
  void on_time();
  void on_datagrams();
  void take(const control::SocketAddress& from, std::span<const std::byte> bytes);
  void beat(const std::string& peer, Instant now);

  control::Loop& loop_;
  const Clock& clock_;
  const Roster& roster_;
  const Events events_;
  Liveness liveness_;
  std::optional<control::UdpSocket> socket_;
  std::map<std::string, Channel, std::less<>> channels_;
  std::vector<Liveness::Loss> losses_;  // found among datagrams, and not reported yet
  control::Loop::Watch reads_ = 0;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
