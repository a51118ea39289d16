// PeerLink: one connection to the supervisor of another node: frames (frame.hpp) in TLS, over TCP.
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/link/frame.hpp"
#include "daemon/control/link/heartbeat.hpp"
#include "daemon/control/link/tls.hpp"
#include "daemon/control/loop.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::control {

// The owner greets, checks the other's greeting, and then admits the link or refuses it. The link itself
// refuses bytes that are no frame, and a peer that has proved a name and then does not greet. It also refuses
// a peer whose certificate lies outside its dates by this node's clock. Each side of such a pair sends its
// time, so that both can tell a wrong clock from an old certificate.
//
// Owns    the socket, the keys of this connection, and what is to be sent.
// Thread  the loop's. A callback may send and close; it must not destroy the link.
// Bound   the Times; kUnsentMax; frames of kGreetingBytesMax until it is admitted.
// Fails   `ended` gives the reason, once: kDenied (the peer is not the expected one), kProtocol, kDaemonLost
//         (the peer or the path to it is gone), kTimeout, kBusy (the peer does not read).
class PeerLink {
 public:
  static constexpr std::size_t kUnsentMax = std::size_t{16} << 20;

  struct Times {
    Nanos admission = std::chrono::seconds(5);  // from the connection until admit()
    Nanos goodbye = std::chrono::seconds(1);    // after close(), and for the time of a peer that is refused
  };
  struct Events {
    std::function<void()> secured;  // frames can be sent; peer() is known, unless it is in plain text
    std::function<void(Json)> heard;
    std::function<void(const Status& why)> ended;
    // Bytes have come that are the peer's, though they may not be a whole frame yet.
    std::function<void()> alive = [] {};
  };
  // Without credentials the link is in plain text, and a peer is believed about its name. `wanted`: the node
  // that a client means to reach. `now`: this node's time, which it sends to a peer whose dates it refuses.
  PeerLink(Loop& loop, shm::Descriptor socket, TlsStream::Role role, std::shared_ptr<const Credentials> own,
           std::string wanted, WallTime now, Events events, Times times);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Nothing is sent before `secured` and after close(). A frame that is too large ends the link.
  void send(const Json& body);
  // The peer is known: its frames may be large, and it may be silent.
  void admit();
  // Sends what is left, and says goodbye. `ended` is called with `why` once the peer has received it, or its
  // time is over.
  void close(Status why);
  // Closes, and sends the reason to the peer: {"refused": text}, if frames can be sent at all. The link
  // itself adds "time" where it refuses for dates.
  void refuse(const Status& why);

  // The name that the peer has proved, though its certificate may lie outside its dates if the link never was
  // secured; empty in plain text, and before the handshake is over.
  const std::string& peer() const;
  // Where the peer is, as long as the link has not ended.
  SocketAddress address() const;
  // By which address of this node the peer is connected with it; so too.
  SocketAddress own_address() const;
  // The keys of heartbeats that belong to this connection; zero in plain text. kState before `secured`.
  Result<Heartbeat::Keys> heartbeat_keys() const;

 private:
  void start();
  void on_readable();
  void take(std::span<const std::byte> wire);
  void hear();
  void transmit(const Json& body);
  void refuse_dates(Status why);
  void flush();
  void end(Status why);

  Loop& loop_;
  shm::Descriptor socket_;
  shm::Descriptor for_writing_;  // a second number of the socket: a loop watches each for one thing
  const TlsStream::Role role_;
  const std::shared_ptr<const Credentials> own_;
  std::optional<TlsStream> tls_;
  FrameReader frames_;
  const Events events_;
  const Times times_;
  const WallTime now_;  // when it began
  std::vector<std::byte> unsent_;
  Status why_;  // of close(), or for which dates the peer is refused
  bool secured_ = false;
  bool admitted_ = false;
  bool closing_ = false;
  bool ended_ = false;
  Loop::Watch start_ = 0;
  Loop::Watch reads_ = 0;
  Loop::Watch writes_ = 0;
  Loop::Watch timer_ = 0;
};

}  // namespace muster::control
