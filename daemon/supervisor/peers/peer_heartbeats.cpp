#include "daemon/supervisor/peers/peer_heartbeats.hpp"

#include <algorithm>
#include <utility>

#include <netinet/in.h>

namespace muster::supervisor {
namespace {

using control::SocketAddress;

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.address.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address.address).sin_port = htons(port);
  else if (address.address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address.address).sin6_port = htons(port);
}

}  // namespace

PeerHeartbeats::PeerHeartbeats(control::Loop& loop, const Clock& clock, const Roster& roster, Events events)
    : loop_(loop), clock_(clock), roster_(roster), events_(std::move(events)), liveness_(clock.now()) {}

PeerHeartbeats::~PeerHeartbeats() {
  loop_.unwatch(reads_);
  loop_.unwatch(timer_);
}

Status PeerHeartbeats::open(std::uint16_t port) {
  MUSTER_ASSIGN_OR_RETURN(socket_,
                          control::UdpSocket::open({roster_.find(roster_.here)->address.host, port}));
  reads_ = loop_.watch(socket_->descriptor().get(), [this] { on_datagrams(); });
  timer_ = loop_.after(Liveness::kPeriod, [this] { on_time(); });
  return {};
}

std::uint32_t PeerHeartbeats::place_of(const std::string& node) const {
  return static_cast<std::uint32_t>(roster_.find(node) - roster_.members.data());
}

void PeerHeartbeats::begin(const std::string& peer, const control::Heartbeat::Keys& keys,
                           SocketAddress link) {
  const control::TcpAddress& named = roster_.find(peer)->address;
  set_port(link, named.port);
  channels_.insert_or_assign(peer, Channel{.key = keys.own,
                                           .reader = {keys.theirs, place_of(peer), place_of(roster_.here)},
                                           .address = control::numeric(named).value_or(link)});
  liveness_.watch(peer, clock_.now());
}

void PeerHeartbeats::expect(const std::string& peer) {
  if (!channels_.contains(peer)) liveness_.watch(peer, clock_.now());
}

void PeerHeartbeats::heard(const std::string& peer, Instant at) {
  liveness_.heard(peer, at, clock_.now());
}

// No peer is accused as long as datagrams lie unread.
void PeerHeartbeats::on_time() {
  timer_ = loop_.after(Liveness::kPeriod, [this] { on_time(); });
  on_datagrams();
  const Instant now = clock_.now();
  Liveness::Turn turn = liveness_.tick(now);
  for (const std::string& peer : turn.beats)
    if (channels_.contains(peer)) beat(peer, now);
  for (const std::string& peer : turn.suspect) events_.suspect(peer);
  for (const Liveness::Loss& loss : turn.lost) events_.lost(loss.peer, loss.why);
}

void PeerHeartbeats::on_datagrams() {
  socket_->receive(kDatagramsATurn, [this](const SocketAddress& from, std::span<const std::byte> bytes) {
    take(from, bytes);
  });
  for (const Liveness::Loss& loss : std::exchange(losses_, {})) events_.lost(loss.peer, loss.why);
}

void PeerHeartbeats::take(const SocketAddress& from, std::span<const std::byte> bytes) {
  const auto sender = control::sender_of(bytes);
  if (!sender || *sender >= roster_.members.size()) return;
  const auto it = channels_.find(roster_.members[*sender].name);
  if (it == channels_.end()) return;
  auto& [peer, channel] = *it;
  const auto heartbeat = channel.reader.open(bytes);
  if (!heartbeat) return;
  channel.address = from;
  const Instant now = clock_.now();
  liveness_.heard(peer, now, now);
  if (auto loss = liveness_.echo(peer, heartbeat->silence, now)) losses_.push_back(*std::move(loss));
}

// Sequences are times, so that they rise over restarts too: in plain text the key is always the same.
void PeerHeartbeats::beat(const std::string& peer, Instant now) {
  Channel& channel = channels_.at(peer);
  channel.sequence = std::max(channel.sequence + 1, static_cast<std::uint64_t>(now.count()));
  const auto sealed = control::seal({.from = place_of(roster_.here),
                                     .to = place_of(peer),
                                     .sequence = channel.sequence,
                                     .silence = liveness_.silence(peer, now)},
                                    channel.key);
  if (sealed) socket_->send(channel.address, *sealed);
}

void PeerHeartbeats::describe(const std::string& peer, control::Json& report) const {
  const auto it = liveness_.peers().find(peer);
  report["doubts"] = it == liveness_.peers().end() ? 0 : it->second.doubts;
  if (it != liveness_.peers().end()) report["heard_ns"] = (clock_.now() - it->second.heard).count();
}

}  // namespace muster::supervisor
