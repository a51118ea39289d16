// Heartbeats: the datagrams by which supervisors show each other that they live. This file knows bytes only;
// others own the sockets, the time, and the decision which node is lost.
//
//   bytes 0  magic   4  version   8  from   12  to   16  sequence   24  silence in ms   28  tag
//
// All numbers are big-endian. The tag is HMAC-SHA256 of the bytes before it. Each direction of a pair of
// nodes has a key of its own, which both ends draw from their TLS connection: no message carries it. In plain
// text all keys are zero, so any process that reaches the port can pose as a node, as over TCP.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace muster::control {

constexpr std::size_t kHeartbeatBytes = 60;

// The labels by which both ends draw keys from their TLS connection.
constexpr char kHeartbeatsOfClient[] = "EXPORTER-muster-heartbeats-of-client";
constexpr char kHeartbeatsOfServer[] = "EXPORTER-muster-heartbeats-of-server";

struct Heartbeat {
  using Key = std::array<std::byte, 32>;
  using Bytes = std::array<std::byte, kHeartbeatBytes>;
  // The two keys of one end of a connection.
  struct Keys {
    Key own{};     // of what this node sends
    Key theirs{};  // of what the peer sends
  };
  std::uint32_t from = 0;  // the members' places in the cluster file
  std::uint32_t to = 0;
  std::uint64_t sequence = 0;  // rises
  // For how long the sender has received nothing of the receiver, in whole ms. Nanos::max(): the sender has
  // given the receiver up. Other silences are cut to what fits, about 49 days.
  Nanos silence{0};
};

// kInternal: OpenSSL has no memory.
Result<Heartbeat::Bytes> seal(const Heartbeat& heartbeat, const Heartbeat::Key& key);

// The sender that the datagram names: a hint, by which the caller finds the reader for it. Nothing: this is
// no heartbeat.
std::optional<std::uint32_t> sender_of(std::span<const std::byte> datagram);

// Opens what one peer sends to this node.
//
// Owns    the key, and the last sequence.
// Thread  one.
// Bound   reads kHeartbeatBytes.
// Fails   open: nothing, if the datagram is not whole, not of that peer, not for this node, or not newer than
//         the last one. Nothing in it is believed before its tag is.
class HeartbeatReader {
 public:
  HeartbeatReader(const Heartbeat::Key& key, std::uint32_t from, std::uint32_t to)
      : key_(key), from_(from), to_(to) {}
  std::optional<Heartbeat> open(std::span<const std::byte> datagram);

 private:
  Heartbeat::Key key_;
  std::uint32_t from_;
  std::uint32_t to_;
  std::uint64_t last_ = 0;
};

}  // namespace muster::control
