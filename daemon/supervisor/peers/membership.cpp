#include "daemon/supervisor/peers/membership.hpp"

#include "daemon/control/own_version.hpp"
#include "daemon/supervisor/base/retry.hpp"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::size_t kNameBytesMax = control::kNodeNameBytesMax;
constexpr std::size_t kVersionBytesMax = 64;
constexpr std::size_t kLineBytesShown = 200;

std::string hash_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// A text field of an unverified peer, cut to what can be shown.
std::string text_in(const Json& json, const char* name, std::size_t bytes_max) {
  const auto field = json.find(name);
  if (field == json.end() || !field->is_string()) return {};
  const auto& text = field->get_ref<const std::string&>();
  return text.size() <= bytes_max ? text : std::string();
}

std::string line_at(const Json& lines, std::size_t index) {
  if (index >= lines.size() || !lines[index].is_string()) return "nothing";
  return "'" + lines[index].get_ref<const std::string&>().substr(0, kLineBytesShown) + "'";
}

}  // namespace

std::string_view trust_text(Roster::Trust trust) {
  constexpr std::string_view kTexts[] = {"certificates", "secret", "plain text"};
  return kTexts[static_cast<std::size_t>(trust)];
}

const Roster::Member* Roster::find(std::string_view name) const {
  const auto it =
      std::find_if(members.begin(), members.end(), [name](const Member& m) { return m.name == name; });
  return it == members.end() ? nullptr : &*it;
}

const char* peer_state_name(Membership::PeerState state) noexcept {
  constexpr const char* kNames[] = {"away", "reaching", "up", "refused"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string Membership::Peer::reason() const {
  if (lost.empty() || lost == why.message()) return why.message();
  return why.ok() ? lost : lost + "; " + why.message();
}

Membership::Membership(const Roster& roster, Instant now)
    : roster_(roster), hash_(hash_of(roster.configuration)) {
  bool before = true;  // members that stand before this node dial it
  for (const Roster::Member& member : roster_.members) {
    if (member.name == roster_.here) {
      before = false;
      continue;
    }
    Peer& peer = peers_[member.name];
    peer.address = member.address;
    peer.since = peer.dial_at = now;
    peer.dialled = !before;
  }
}

std::vector<std::string> Membership::due(Instant now) {
  std::vector<std::string> names;
  for (auto& [name, peer] : peers_) {
    const bool idle = peer.state == PeerState::kAway || peer.state == PeerState::kRefused;
    if (!peer.dialled || !idle || peer.dial_at > now) continue;
    names.push_back(name);
    // A peer that was refused stays so until it is known to be better.
    if (peer.state == PeerState::kAway) peer.state = PeerState::kReaching;
    peer.dial_at = Instant::max();
  }
  return names;
}

std::optional<Instant> Membership::next_due() const {
  std::optional<Instant> first;
  for (const auto& [name, peer] : peers_) {
    if (!peer.dialled || peer.dial_at == Instant::max()) continue;
    if (!first || peer.dial_at < *first) first = peer.dial_at;
  }
  return first;
}

Json Membership::greeting(Json jobs) const {
  Json greeting{{"protocol", kPeerProtocol},  {"version", control::own_version()},
                {"cluster", roster_.cluster}, {"node", roster_.here},
                {"configuration", hash_},     {"jobs", std::move(jobs)}};
  std::size_t bytes = 0;
  for (const std::string& line : roster_.configuration) bytes += line.size();
  if (bytes <= kLinesBytesMax) greeting["lines"] = roster_.configuration;
  return greeting;
}

Result<std::string> Membership::check(std::string_view proved, std::string_view wanted,
                                      const Json& greeting) const {
  if (!greeting.is_object()) return fail(Code::kProtocol, "its greeting is not a map");
  const std::string name = text_in(greeting, "node", kNameBytesMax);
  const std::string cluster = text_in(greeting, "cluster", kNameBytesMax);
  const auto protocol = greeting.find("protocol");
  if (name.empty() || cluster.empty() || protocol == greeting.end() || !protocol->is_number_unsigned())
    return fail(Code::kProtocol, "its greeting lacks node, cluster or protocol");
  if (!proved.empty() && proved != name)
    return fail(Code::kDenied, "it calls itself {}, and has proved that it is {}", name, proved);
  if (cluster != roster_.cluster)
    return fail(Code::kDenied, "it belongs to cluster {}, and this node to {}", cluster, roster_.cluster);
  if (!wanted.empty() && wanted != name)
    return fail(Code::kDenied, "it is node {}, and node {} was expected at this address", name, wanted);
  if (name == roster_.here) return fail(Code::kDenied, "it calls itself {}, as this node does", name);
  if (!peers_.contains(name))
    return fail(Code::kDenied, "node {} is no member: the cluster file of node {} does not name it", name,
                roster_.here);
  if (*protocol != kPeerProtocol)
    return fail(Code::kVersion,
                "version {} of its daemon speaks protocol {}, and this node {}: install the same release",
                text_in(greeting, "version", kVersionBytesMax), protocol->get<std::uint64_t>(),
                kPeerProtocol);
  MUSTER_RETURN_IF_ERROR(difference(greeting));
  return name;
}

Status Membership::difference(const Json& greeting) const {
  if (text_in(greeting, "configuration", kVersionBytesMax) == hash_) return {};
  const auto theirs = greeting.find("lines");
  if (theirs == greeting.end() || !theirs->is_array())
    return failure(Code::kConfig, "its configuration is another; compare the cluster files of both nodes");
  const Json ours(roster_.configuration);
  std::size_t at = 0;
  while (at < ours.size() && at < theirs->size() && ours[at] == (*theirs)[at]) ++at;
  return failure(
      Code::kConfig,
      "its configuration is another: {} on node {}, {} on node {}; make the cluster files, and `defaults` of "
      "musterd.yaml, the same",
      line_at(ours, at), roster_.here, line_at(*theirs, at), text_in(greeting, "node", kNameBytesMax));
}

void Membership::up(const std::string& name, const Json& greeting, Instant now) {
  Peer& peer = peers_.at(name);
  peer.state = PeerState::kUp;
  peer.why = {};
  peer.lost.clear();
  peer.since = now;
  peer.failures = 0;
  peer.dial_at = Instant::max();
  peer.version = text_in(greeting, "version", kVersionBytesMax);
}

bool Membership::ended(const std::string& name, const Status& why, Instant now) {
  const auto it = peers_.find(name);
  if (it == peers_.end()) return false;
  Peer& peer = it->second;
  const bool refused =
      why.code() == Code::kDenied || why.code() == Code::kConfig || why.code() == Code::kVersion;
  const PeerState state = refused ? PeerState::kRefused : PeerState::kAway;
  // While it is tried again its state is kReaching; what has changed is seen against the state before.
  const bool changed = peer.why.text() != why.text() || peer.state == PeerState::kUp;
  if (changed || peer.state == PeerState::kUp) peer.since = now;
  peer.state = state;
  peer.why = why;
  peer.dial_at = now + doubled_wait(kFirstRetry, peer.failures++, kLastRetry);
  return changed;
}

bool Membership::is_up(std::string_view name) const {
  const auto it = peers_.find(name);
  return it != peers_.end() && it->second.state == PeerState::kUp;
}

}  // namespace muster::supervisor
