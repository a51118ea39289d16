#include "daemon/supervisor/peers/liveness.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

double seconds(Nanos time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

// This node's own sleep: every deadline moves by its length.
void Liveness::excuse(Instant now) {
  const Nanos late = now - due_;
  if (late <= kLateAfter) return;
  for (auto& [name, peer] : peers_) {
    peer.counted = std::min(now, peer.counted + late);
    peer.since = now;
  }
  due_ = now;
}

void Liveness::watch(const std::string& peer, Instant now) {
  excuse(now);
  Peer& watched = peers_[peer];
  watched = {.heard = now, .doubts = watched.doubts, .counted = now, .since = now};
}

void Liveness::heard(const std::string& name, Instant at, Instant now) {
  excuse(now);
  const auto it = peers_.find(name);
  if (it == peers_.end() || it->second.lost) return;
  Peer& peer = it->second;
  at = std::min(at, now);
  peer.heard = std::max(peer.heard, at);
  peer.counted = std::max(peer.counted, at);
  peer.suspect = peer.suspect && now - peer.counted >= kSuspectAfter;
}

std::optional<Liveness::Loss> Liveness::echo(const std::string& name, Nanos silence, Instant now) {
  excuse(now);
  const auto it = peers_.find(name);
  if (it == peers_.end() || it->second.lost) return std::nullopt;
  Peer& peer = it->second;
  if (silence < kLostAfter || now - peer.since < kLostAfter) return std::nullopt;
  if (silence == Nanos::max())
    return lose(
        name, peer, now,
        failure(Code::kPeerLost, "one way: node {} has given this node up, though it is heard here", name));
  return lose(name, peer, now,
              failure(Code::kPeerLost,
                      "one way: node {} hears nothing of this node, for {:.1f} s, though it is heard here",
                      name, seconds(silence)));
}

Liveness::Turn Liveness::tick(Instant now) {
  excuse(now);
  due_ = now + kPeriod;
  Turn turn;
  for (auto& [name, peer] : peers_) {
    if (peer.lost && now - peer.lost_at >= kLostAfter) continue;
    turn.beats.push_back(name);
    if (peer.lost) continue;
    const Nanos silent = now - peer.counted;
    if (silent >= kLostAfter) {
      turn.lost.push_back(
          lose(name, peer, now,
               failure(Code::kPeerLost, "nothing was heard of it for {:.1f} s, over any channel",
                       seconds(now - peer.heard))));
    } else if (silent >= kSuspectAfter) {
      if (!std::exchange(peer.suspect, true)) ++peer.doubts;
      turn.suspect.push_back(name);
    }
  }
  return turn;
}

Liveness::Loss Liveness::lose(const std::string& name, Peer& peer, Instant now, Status why) {
  peer.lost = true;
  peer.suspect = false;
  peer.lost_at = now;
  return {name, std::move(why)};
}

// A peer may be lost though its messages still arrive: it must learn of that too.
Nanos Liveness::silence(const std::string& name, Instant now) const {
  const auto it = peers_.find(name);
  if (it == peers_.end()) return Nanos::max();
  const Nanos silent = now - it->second.counted;
  return it->second.lost && silent < kLostAfter ? Nanos::max() : silent;
}

}  // namespace muster::supervisor
