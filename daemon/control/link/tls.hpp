// TLS 1.3 between supervisors, without sockets: bytes of the wire go in and come out (decision D15). Both
// sides prove their identity: by certificates of one authority, or, in a small cluster, by a shared secret.
//
// No tickets, no early data. A refusal names the reason, and an alert informs the other side. An alert cannot
// explain dates: in that case the handshake completes, and the refusal is sent over the connection.
#pragma once

#include "daemon/control/link/certificate.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::control {

constexpr std::size_t kSecretBytesMin = 32;

// The means by which this node proves its identity: a certificate, or the cluster's secret.
//
// Owns    keys. Thread  a value that never changes; any. Bound  -. Fails  when made.
class Credentials {
 public:
  // PEM texts: the authorities that are believed, this node's certificate with what leads to its authority,
  // and its key. kBadArgument: a text is not what it should be, or they do not belong together.
  static Result<Credentials> of_certificates(std::string_view cluster, std::string_view authorities,
                                             const CertifiedKey& own);
  // One secret for all nodes. It tells the cluster's nodes from others, but not from each other: a node that
  // knows it may call itself by any node's name. kBadArgument: fewer than kSecretBytesMin bytes; a name.
  static Result<Credentials> of_secret(std::string_view cluster, std::string_view node,
                                       std::string_view secret);
  Credentials(Credentials&&) noexcept;
  Credentials& operator=(Credentials&&) noexcept;
  ~Credentials();

 private:
  friend class TlsStream;
  struct Parts;
  explicit Credentials(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// One connection.
//
// Owns    its keys and what is to be sent. The credentials outlive it.
// Thread  one.
// Bound   one record of 16 KiB, and what the caller has not taken.
// Fails   receive: kDenied (the peer is not the expected one), kProtocol; the connection is over then, but
//         take_wire() still has the alert. write: kState before the handshake is over.
class TlsStream {
 public:
  enum class Role : std::uint8_t { kClient, kServer };
  // `peer`: the node that a client means to reach; empty: any of the cluster. `now`: for certificates' dates.
  static Result<TlsStream> begin(const Credentials& credentials, Role role, std::string_view peer,
                                 WallTime now);
  TlsStream(TlsStream&&) noexcept;
  TlsStream& operator=(TlsStream&&) noexcept;
  ~TlsStream();

  // Takes all bytes that have come, and returns the plain text that was in them; none during the handshake.
  Result<std::vector<std::byte>> receive(std::span<const std::byte> wire);
  // Bytes to be sent, in order.
  std::vector<std::byte> take_wire();
  Status write(std::span<const std::byte> plain);
  // Says goodbye; what comes after it is not from this side.
  void close();
  // Draws a key from this connection: both ends get the same by the same label, and nobody else does. kState
  // before established().
  Result<std::array<std::byte, 32>> exported(std::string_view label) const;

  // The handshake is over, and the peer is known.
  bool established() const;
  // Why established() stays false though the handshake is over: an otherwise good certificate lies outside
  // its dates. The peer has proved its name, and write() may tell it the reason, but nothing else. Otherwise
  // OK.
  Status outside_dates() const;
  // The node at the other end.
  const std::string& peer() const;
  // The other side has said goodbye.
  bool closed() const;

 private:
  struct Parts;
  explicit TlsStream(std::unique_ptr<Parts> parts);
  Status handshake();
  Status refusal(int result);
  std::unique_ptr<Parts> parts_;
};

}  // namespace muster::control
