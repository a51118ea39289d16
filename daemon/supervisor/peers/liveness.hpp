// Liveness: which peers live, as far as this node can know. A sans-IO core: time and evidence are passed in,
// and PeerHeartbeats carries out what it decides.
//
// Each side sends a heartbeat every kPeriod, over UDP: there one that is lost delays no other. It reports for
// how long its sender has received nothing of the receiver, so both ends see a loss in one direction. All
// bytes of a peer are evidence that it lives: slow is not dead. A peer that is silent for kSuspectAfter is
// asked over TCP, and others may vouch for it. It is lost when it is silent for kLostAfter, or when it
// reports that it has received nothing of this node for so long.
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
// Fails   never. A peer that it does not watch counts as silent.
class Liveness {
 public:
  static constexpr Nanos kPeriod = std::chrono::milliseconds(200);
  static constexpr Nanos kSuspectAfter = 3 * kPeriod;
  static constexpr Nanos kLostAfter = 7 * kPeriod;
  // A tick that comes so much too late means that this node slept. It may have missed messages of the others,
  // and they have received none of its own, so no peer is accused for that time.
  static constexpr Nanos kLateAfter = 2 * kPeriod;

  struct Loss {
    std::string peer;
    Status why;  // kPeerLost
  };
  struct Turn {
    std::vector<std::string> beats;    // peers that get a heartbeat now
    std::vector<std::string> suspect;  // peers to be asked, for which others may vouch
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
    // Since then this node has sent its heartbeats, so the reports of the peer about them count.
    Instant since{0};
  };

  explicit Liveness(Instant now) : due_(now + kPeriod) {}

  // The peer is up, or up anew: what was before does not count.
  void watch(const std::string& peer, Instant now);
  // Evidence that the peer lived at `at`: an authentic datagram, bytes on its link, an engine's report.
  void heard(const std::string& peer, Instant at, Instant now);
  // Takes a new datagram's report: the peer has received nothing of this node for `silence`; Nanos::max(): it
  // has given this node up.
  std::optional<Loss> echo(const std::string& peer, Nanos silence, Instant now);
  // To be called each kPeriod, after all that has come was passed on.
  Turn tick(Instant now);

  // The silence to report in a heartbeat to that peer. Heartbeats to a lost peer go on for kLostAfter: it is
  // to learn of its loss though some of them are lost too.
  Nanos silence(const std::string& peer, Instant now) const;
  const std::map<std::string, Peer, std::less<>>& peers() const { return peers_; }

 private:
  void excuse(Instant now);
  static Loss lose(const std::string& name, Peer& peer, Instant now, Status why);

  std::map<std::string, Peer, std::less<>> peers_;
  Instant due_;  // the next tick
};

}  // namespace muster::supervisor
