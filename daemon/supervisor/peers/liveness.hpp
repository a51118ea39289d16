// Liveness: which peers live, as far as this node can know. A sans-IO core: time and evidence are passed in,
// and PeerHeartbeats carries out what it decides.
//
// Each side sends a heartbeat every kPeriod, over UDP: there one that is lost delays no other. It says for
// how long its sender has heard nothing of the receiver, so both ends see a loss in one direction. Whatever
// comes from a peer is evidence that it lives: slow is not dead. A peer of which nothing was heard for
// kSuspectAfter is asked over TCP, and others may vouch for it. It is lost when nothing at all was heard for
// kLostAfter, or when it says that it has heard nothing of this node for so long.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/status.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    what is known of each peer.
// Thread  the supervisor's loop.
// Bound   the peers that were ever watched.
// Fails   never. A peer that it does not watch is as one that says nothing.
class Liveness {
 public:
  static constexpr Nanos kPeriod = std::chrono::milliseconds(200);
  static constexpr Nanos kSuspectAfter = 3 * kPeriod;
  static constexpr Nanos kLostAfter = 7 * kPeriod;
  // A tick that comes so much too late says that this node slept. It may have slept through what the others
  // said, and they have not heard it, so nobody is accused for that time.
  static constexpr Nanos kLateAfter = 2 * kPeriod;

  struct Loss {
    std::string peer;
    Status why;  // kPeerLost
  };
  struct Turn {
    std::vector<std::string> beats;    // who gets a heartbeat now
    std::vector<std::string> suspect;  // who is to be asked, and may be vouched for
    std::vector<Loss> lost;
  };
  struct Peer {
    Instant heard{0};          // the last evidence, or the moment since which it is watched
    std::uint64_t doubts = 0;  // how often it was suspect
    bool suspect = false;
    bool lost = false;
    Instant lost_at{0};
    // Silence counts from here: later than `heard` by the time for which this node slept.
    Instant counted{0};
    // Since then this node has sent what it should, so the peer may be held to what it says of that.
    Instant since{0};
  };

  explicit Liveness(Instant now) : due_(now + kPeriod) {}

  // The peer is up, or up anew: what was before does not count.
  void watch(const std::string& peer, Instant now);
  // Evidence that the peer lived at `at`: an authentic datagram, bytes on its link, an engine's word.
  void heard(const std::string& peer, Instant at, Instant now);
  // What a new datagram of the peer says: it has heard nothing of this node for `silence`; Nanos::max(): it
  // has given this node up.
  std::optional<Loss> echo(const std::string& peer, Nanos silence, Instant now);
  // To be called each kPeriod, after all that has come was passed on.
  Turn tick(Instant now);

  // What a heartbeat to that peer says. Those to a peer that was lost go on for kLostAfter, so that it learns
  // of it though some are lost too.
  Nanos silence(const std::string& peer, Instant now) const;
  const std::map<std::string, Peer, std::less<>>& peers() const { return peers_; }

 private:
  void excuse(Instant now);
  static Loss lose(const std::string& name, Peer& peer, Instant now, Status why);

  std::map<std::string, Peer, std::less<>> peers_;
  Instant due_;  // the next tick
};

}  // namespace muster::supervisor
