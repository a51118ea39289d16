#include "daemon/supervisor/peers/peers.hpp"

#include "api/base/log.hpp"
#include "api/base/utf8.hpp"
#include "daemon/control/link/clocks.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::TlsStream;

constexpr std::size_t kRefusalBytesMax = 512;  // of a reason that a peer gives
constexpr std::size_t kToldMax = 256;

bool is_refusal(const Status& why) {
  return why.code() == Code::kDenied || why.code() == Code::kConfig || why.code() == Code::kVersion ||
         why.code() == Code::kProtocol || why.code() == Code::kTimeout;
}

void add_address(const std::string& address, InterfaceRule& rule) {
  const auto known = std::find(rule.addresses.begin(), rule.addresses.end(), address);
  if (known == rule.addresses.end()) rule.addresses.push_back(address);
}

}  // namespace

Peers::Peers(control::Loop& loop, const Clock& clock, const Options& options, Events events)
    : loop_(loop),
      clock_(clock),
      roster_(options.roster),
      wall_time_(options.wall_time),
      events_(std::move(events)),
      interfaces_(options.job_defaults.interfaces),
      membership_(roster_, clock.now()),
      heartbeats_(loop, clock, roster_,
                  {.suspect =
                       [this](const std::string& peer) {
                         send(peer, {{"ping", true}});
                         events_.suspected(peer);
                       },
                   .lost = [this](const std::string& peer, const Status& why) { on_lost(peer, why); }}),
      path_(loop, roster_.network) {}

Peers::~Peers() {
  loop_.unwatch(clients_);
  loop_.unwatch(dial_timer_);
  loop_.unwatch(reminder_);
}

Status Peers::read_credentials() {
  if (roster_.trust == Roster::Trust::kPlainText) return {};
  MUSTER_ASSIGN_OR_RETURN(own_, roster_.load_credentials());
  warn_of_end();
  return {};
}

// Each day: a daemon may run for longer than its certificate is good.
void Peers::warn_of_end() {
  loop_.unwatch(std::exchange(reminder_, 0));
  if (!own_.validity) return;
  const std::string outside = outside_own_dates();
  const auto left = std::chrono::floor<std::chrono::hours>(own_.validity->until - wall_time_());
  if (!outside.empty())
    MUSTER_LOG(kWarning, "peers",
               "{}; set this clock if it is wrong (NTP), else write a new certificate (`muster certs node`) "
               "and send SIGHUP",
               outside);
  else if (left < kWarnedBefore)
    MUSTER_LOG(kWarning, "peers",
               "the certificate of node {} is good for {} hours more; write a new one (`muster certs node`) "
               "and send SIGHUP",
               roster_.here, left.count());
  reminder_ = loop_.after(std::chrono::days(1), [this] {
    reminder_ = 0;
    warn_of_end();
  });
}

std::string Peers::outside_own_dates() const {
  return control::outside_dates(fmt::format("the certificate of node {}", roster_.here), *own_.validity,
                                wall_time_(), "the clock of this node");
}

Status Peers::open() {
  if (alone()) return {};
  MUSTER_RETURN_IF_ERROR(read_credentials());
  auto listened = control::TcpListener::open(roster_.find(roster_.here)->address);
  if (!listened && listened.error().code() == Code::kNotFound)
    return failure(
        Code::kNotFound,
        "{}: no interface of this node has that address; correct nodes[].address of the cluster file, or "
        "node.name",
        listened.error().message());
  MUSTER_ASSIGN_OR_RETURN(auto listener, std::move(listened));
  MUSTER_RETURN_IF_ERROR(heartbeats_.open(listener.port()));
  listener_ = std::move(listener);
  if (!interfaces_.addresses.empty()) path_.describe(interfaces_);
  if (roster_.trust == Roster::Trust::kPlainText)
    MUSTER_LOG(kWarning, "peers",
               "peers.plaintext: whoever reaches port {} can pose as a node of cluster {}; use "
               "certificates (`muster certs`) outside of tests",
               listener_->port(), roster_.cluster);
  clients_ = loop_.watch(listener_->descriptor().get(), [this] { on_clients(); });
  dial_due();
  return {};
}

Status Peers::reload() {
  if (alone()) return {};
  return listener_ ? read_credentials() : open();
}

void Peers::dial_due() {
  loop_.unwatch(std::exchange(dial_timer_, 0));
  const Instant now = clock_.now();
  for (const std::string& name : membership_.due(now))
    dials_[name] = std::make_unique<control::TcpDial>(
        loop_, roster_.find(name)->address, kDialTime,
        [this, name](Result<shm::Descriptor> socket) { on_dialled(name, std::move(socket)); });
  if (const auto next = membership_.next_due())
    dial_timer_ = loop_.after(std::max(Nanos(0), *next - now), [this] {
      dial_timer_ = 0;
      dial_due();
    });
}

void Peers::on_dialled(const std::string& name, Result<shm::Descriptor> socket) {
  const std::string peer = name;  // `name` ends with the dial
  dials_.erase(peer);
  if (!socket) {
    if (membership_.ended(peer, socket.error(), clock_.now())) tell(peer, socket.error());
    return dial_due();
  }
  Connection connection;
  connection.name = peer;
  connection.from = roster_.find(peer)->address.text();
  connection.dialled = true;
  open_link(*std::move(socket), std::move(connection));
}

// Pending clients that send nothing must not keep members out: the oldest makes room.
void Peers::on_clients() {
  auto client = listener_->accept();
  if (!client) return;
  const auto is_stranger = [](const auto& entry) { return entry.second.name.empty(); };
  if (std::count_if(connections_.begin(), connections_.end(), is_stranger) >=
      static_cast<std::ptrdiff_t>(kStrangersMax)) {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_stranger);
    connections_.erase(oldest);
  }
  Connection connection;
  connection.from = std::move(client->from);
  open_link(std::move(client->socket), std::move(connection));
}

void Peers::open_link(shm::Descriptor socket, Connection connection) {
  const Id id = next_++;
  // A certificate names its node, and the greeting is compared with that, so the other side learns what is
  // wrong. A secret gives no name.
  const std::string wanted = roster_.trust == Roster::Trust::kSecret ? connection.name : std::string();
  const auto role = connection.dialled ? TlsStream::Role::kClient : TlsStream::Role::kServer;
  Connection& kept = connections_.emplace(id, std::move(connection)).first->second;
  kept.link = std::make_unique<control::PeerLink>(
      loop_, std::move(socket), role, own_.credentials, wanted, wall_time_(),
      control::PeerLink::Events{
          .secured =
              [this, id] {
                connections_.at(id).link->send({{"greeting", membership_.greeting(events_.jobs())},
                                                {"time", control::said(wall_time_())}});
              },
          .heard = [this, id](const Json& frame) { on_heard(id, frame); },
          // Later: the link's own callback is still on the stack.
          .ended = [this, id](const Status& why) { loop_.post([this, id, why] { on_ended(id, why); }); },
          // Bytes are evidence that a peer lives only once the peer has identified itself.
          .alive =
              [this, id] {
                const Connection& from = connections_.at(id);
                if (!from.greeting.is_null()) heartbeats_.heard(from.name, clock_.now());
              }},
      control::PeerLink::Times{});
}

void Peers::on_heard(Id id, const Json& frame) {
  Connection& connection = connections_.at(id);
  if (const auto refused = frame.find("refused"); refused != frame.end()) {
    const std::string reason = refused->is_string() ? refused->get<std::string>() : "no reason";
    const auto time = control::time_said(frame);  // it refuses dates
    return connection.link->close(failure(Code::kDenied, "it refuses node {}: {}{}{}", roster_.here,
                                          printable(reason.substr(0, kRefusalBytesMax), Lines::kOne),
                                          time ? "; " : "",
                                          time ? control::cure_of_dates(wall_time_(), *time) : ""));
  }
  if (const auto greeting = frame.find("greeting"); greeting != frame.end()) {
    if (const auto time = control::time_said(frame))
      connection.clock = control::clocks_apart(wall_time_(), *time);
    return greeted(id, *greeting);
  }
  if (frame.contains("welcome")) {
    connection.welcomed = true;
    connection.path = DataPath::of_peer(frame.value("path", Json::object()));
    return conclude(id);
  }
  // A firewall that drops only datagrams makes no peer lost: the answer is evidence, whatever it contains.
  if (connection.up && frame.contains("ping")) return connection.link->send({{"pong", true}});
  if (connection.up && frame.contains("pong")) return;
  if (connection.up) return events_.heard(connection.name, frame);
  connection.link->refuse(failure(Code::kProtocol, "it has sent a message before its greeting"));
}

void Peers::greeted(Id id, const Json& greeting) {
  Connection& connection = connections_.at(id);
  if (!connection.greeting.is_null())
    return connection.link->refuse(failure(Code::kProtocol, "it has greeted twice"));
  const auto name = membership_.check(connection.link->peer(), connection.name, greeting);
  if (!name) return connection.link->refuse(name.error());
  connection.name = *name;
  connection.greeting = greeting;
  const control::SocketAddress own = connection.link->own_address();
  if (const auto address = IpAddress::of(reinterpret_cast<const sockaddr&>(own.address)))
    reached_at_[connection.name] = address->text();
  InterfaceRule rule = interfaces_;
  for (const auto& [peer, address] : reached_at_) add_address(address, rule);
  connection.link->send({{"welcome", true}, {"path", path_.describe(rule)}});
  conclude(id);
}

// A newer connection of a peer takes the place of one whose end this node has not seen yet.
void Peers::conclude(Id id) {
  Connection& connection = connections_.at(id);
  if (connection.up || !connection.welcomed || connection.greeting.is_null()) return;
  const auto keys = connection.link->heartbeat_keys();
  if (!keys) return connection.link->close(keys.error());
  for (auto& [other_id, other] : connections_) {
    if (other_id == id || !other.up || other.name != connection.name) continue;
    other.up = false;
    const Status why = failure(Code::kDaemonLost, "it has connected anew");
    membership_.ended(other.name, why, clock_.now());
    events_.down(other.name, why);
    other.link->close(why);
  }
  connection.up = true;
  connection.link->admit();
  membership_.up(connection.name, connection.greeting, clock_.now());
  heartbeats_.begin(connection.name, *keys, connection.link->address());
  paths_[connection.name] = connection.path;
  told_.erase(connection.name);
  MUSTER_LOG(kInfo, "peers", "node {} is up, at {}", connection.name, connection.from);
  if (!connection.clock.empty() && roster_.trust == Roster::Trust::kCertificates)
    MUSTER_LOG(
        kWarning, "peers",
        "node {}: {}; certificates have dates, so set the clock that is wrong (NTP) before they refuse "
        "each other",
        connection.name, connection.clock);
  const auto jobs = connection.greeting.find("jobs");
  events_.up(connection.name, jobs == connection.greeting.end() ? Json::array() : *jobs);
}

void Peers::on_ended(Id id, const Status& why) {
  auto node = connections_.extract(id);
  if (node.empty()) return;  // it had to make room
  const Connection& connection = node.mapped();
  const std::string name = connection.name.empty() ? connection.link->peer() : connection.name;
  const bool matters = connection.dialled || connection.up || is_refusal(why);
  if (!connection.dialled && !connection.up) note_refusal(connection, why);
  if (connection.up || (!name.empty() && matters && !membership_.is_up(name))) {
    if (membership_.ended(name, why, clock_.now())) tell(name, why);
    if (connection.up) events_.down(name, why);
  }
  dial_due();
}

// The loss does not wait for the link: perhaps nobody is there to answer the goodbye.
void Peers::on_lost(const std::string& peer, const Status& why) {
  membership_.lost(peer, why);
  tell(peer, why);
  const auto it = std::find_if(connections_.begin(), connections_.end(), [&peer](const auto& entry) {
    return entry.second.up && entry.second.name == peer;
  });
  if (it == connections_.end()) return events_.lost(peer, why);
  connections_.extract(it).mapped().link->close(why);
  membership_.ended(peer, why, clock_.now());
  events_.lost(peer, why);
  events_.down(peer, why);
  dial_due();
}

void Peers::note_refusal(const Connection& connection, const Status& why) {
  if (!is_refusal(why)) return;
  const std::string node = connection.name.empty() ? connection.link->peer() : connection.name;
  if (refusals_.size() == kRefusalsMax) refusals_.pop_front();
  refusals_.push_back({connection.from, node, why, clock_.now()});
  // Without its port, which is another each time.
  if (node.empty()) tell(connection.from.substr(0, connection.from.rfind(':')), why);
}

void Peers::tell(const std::string& peer, const Status& why) {
  const Instant now = clock_.now();
  const bool member = roster_.find(peer) != nullptr;
  if (!member && told_.size() >= kToldMax && !told_.contains(peer)) {
    std::erase_if(told_, [&](const auto& entry) { return now - entry.second.second >= kLogAgain; });
    if (told_.size() >= kToldMax) return;
  }
  auto& [text, at] = told_[peer];
  if (text == why.text() && now - at < kLogAgain) return;
  text = why.text();
  at = now;
  MUSTER_LOG(kWarning, "peers", "{}{}: {}", member ? "node " : "connection from ", peer, why.message());
}

bool Peers::send(const std::string& peer, const Json& message) {
  for (auto& [id, connection] : connections_) {
    if (!connection.up || connection.name != peer) continue;
    connection.link->send(message);
    return true;
  }
  return false;
}

InterfaceRule Peers::interfaces_for(const control::JobSpec& spec) const {
  InterfaceRule rule = spec.interfaces;
  for (const std::string& node : spec.world.nodes())
    if (const auto it = reached_at_.find(node); it != reached_at_.end()) add_address(it->second, rule);
  return rule;
}

Peers::Counts Peers::counts() const {
  Counts found{0, membership_.peers().size()};
  for (const auto& [name, peer] : membership_.peers()) found.up += is_up(name) ? 1 : 0;
  return found;
}

std::string Peers::why_not(const std::string& peer) const {
  const auto it = membership_.peers().find(peer);
  if (it == membership_.peers().end()) return fmt::format("node {} is no member", peer);
  const auto& known = it->second;
  if (known.why.ok()) return fmt::format("node {} was not reached yet", peer);
  return fmt::format("node {} is {}: {}", peer,
                     known.state == Membership::PeerState::kRefused ? "refused" : "away", known.reason());
}

Json Peers::report() const {
  if (alone()) return nullptr;
  const Instant now = clock_.now();
  Json peers = Json::array();
  for (const Roster::Member& member : roster_.members) {
    const auto it = membership_.peers().find(member.name);
    if (it == membership_.peers().end()) continue;
    const Membership::Peer& peer = it->second;
    peers.push_back({{"node", member.name},
                     {"address", member.address.text()},
                     {"state", peer_state_name(peer.state)},
                     {"why", peer.reason()},
                     {"for_ns", (now - peer.since).count()},
                     {"version", peer.version}});
    if (const auto path = paths_.find(member.name); path != paths_.end()) peers.back()["path"] = path->second;
    heartbeats_.describe(member.name, peers.back());
  }
  Json refusals = Json::array();
  for (const Refusal& refusal : refusals_)
    refusals.push_back({{"from", refusal.from},
                        {"node", refusal.node},
                        {"why", refusal.why.message()},
                        {"ago_ns", (now - refusal.at).count()}});
  Json report{{"cluster", roster_.cluster},
              {"node", roster_.here},
              {"port", listener_ ? listener_->port() : 0},
              {"trust", trust_text(roster_.trust)},
              {"peers", std::move(peers)},
              {"refusals", std::move(refusals)}};
  if (!path_.described().is_null()) report["path"] = path_.described();
  if (own_.validity) {
    report["certificate_days"] =
        std::chrono::floor<std::chrono::days>(own_.validity->until - wall_time_()).count();
    if (const std::string outside = outside_own_dates(); !outside.empty())
      report["certificate_fault"] = outside;
  }
  return report;
}

}  // namespace muster::supervisor
