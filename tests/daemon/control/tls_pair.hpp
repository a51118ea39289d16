// Two ends of a TLS connection in one process, with the bytes between them in the test's hands.
#pragma once

#include "daemon/control/link/tls.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::control::test {

constexpr WallTime kToday{std::chrono::sys_days{std::chrono::year{2026} / 11 / 26}};
using Wire = std::vector<std::byte>;

// A cluster's authority, and credentials that it issues.
struct Lab {
  explicit Lab(std::string named = "lab-a", WallTime now = kToday)
      : cluster(std::move(named)), authority(*make_authority(cluster, now, kAuthorityLife)) {}
  CertifiedKey certified(const std::string& node, WallTime now = kToday) const {
    return *certify_node(authority, cluster, node, now, kNodeLife);
  }
  Credentials of(const std::string& node) const { return with(certified(node)); }
  Credentials with(const CertifiedKey& own) const {
    auto made = Credentials::of_certificates(cluster, authority.certificate, own);
    EXPECT_TRUE(made) << made.error().text();
    return *std::move(made);
  }
  std::string cluster;
  CertifiedKey authority;
};

// Owns    both ends. Thread  the test's. Bound  -. Fails  the test.
class TlsPair {
 public:
  TlsPair(const Credentials& client_credentials, const Credentials& server_credentials,
          std::string_view wanted, WallTime now = kToday)
      : TlsPair(client_credentials, server_credentials, wanted, now, now) {}
  // Each by its own clock.
  TlsPair(const Credentials& client_credentials, const Credentials& server_credentials,
          std::string_view wanted, WallTime of_client, WallTime of_server)
      : client(*TlsStream::begin(client_credentials, TlsStream::Role::kClient, wanted, of_client)),
        server(*TlsStream::begin(server_credentials, TlsStream::Role::kServer, "", of_server)) {}

  // Carries bytes until both ends are silent. `on_the_way` may change them.
  void run(const std::function<void(Wire&)>& on_the_way = {}) {
    for (int quiet = 0; quiet < 2;) {
      const std::size_t moved = carry(client, server, server_says, to_server, on_the_way) +
                                carry(server, client, client_says, to_client, on_the_way);
      quiet = moved == 0 ? quiet + 1 : 0;
    }
  }

  TlsStream client;
  TlsStream server;
  Status client_says, server_says;  // the first refusal of each
  Wire to_client, to_server;        // plain text that has arrived

 private:
  static std::size_t carry(TlsStream& from, TlsStream& to, Status& says, Wire& arrived,
                           const std::function<void(Wire&)>& on_the_way) {
    Wire wire = from.take_wire();
    if (wire.empty()) return 0;
    if (on_the_way) on_the_way(wire);
    const auto plain = to.receive(wire);
    if (plain)
      arrived.insert(arrived.end(), plain->begin(), plain->end());
    else if (says.ok())
      says = plain.error();
    return wire.size();
  }
};

inline Wire wire_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace muster::control::test
