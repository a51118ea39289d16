// Roster: the nodes of the cluster, and how they reach and trust each other, by this node's files.
#pragma once

#include "daemon/control/link/tcp.hpp"
#include "daemon/control/link/tls.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

struct Roster {
  enum class Trust : std::uint8_t { kCertificates, kSecret, kPlainText };
  // This node's credentials, read from its files.
  struct OwnCredentials {
    std::shared_ptr<const control::Credentials> credentials;  // null: plain text
    std::optional<control::Validity> validity;                // of a certificate
  };
  struct Member {
    std::string name;
    control::TcpAddress address;
  };
  std::string cluster;
  std::vector<Member> members;  // in the order of the cluster file; fewer than two: this node stands alone
  std::string here;             // this node
  std::string network;          // by which the engines of a job reach each other; empty: none
  std::string tie_breaker;      // a member; empty: none
  std::vector<std::string> configuration;  // what must be the same on all nodes, a line each
  Trust trust = Trust::kCertificates;
  std::function<Result<OwnCredentials>()> load_credentials;  // reads the files, at start and at SIGHUP

  bool alone() const { return members.size() < 2; }
  // Null: no such member.
  const Member* find(std::string_view name) const;
};
std::string_view trust_text(Roster::Trust trust);

}  // namespace muster::supervisor
