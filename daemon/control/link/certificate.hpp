// Certificates of a cluster: one authority, and a certificate for each node that names the cluster and the
// node as a URI, "spiffe://CLUSTER/node/NODE" (the form of SPIFFE, so other authorities can issue them).
// ECDSA on P-256. Texts are PEM.
#pragma once

#include "api/base/result.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace muster::control {

// Seconds of wall time since 1970: validity is a matter of calendars.
using WallTime = std::chrono::sys_seconds;
constexpr std::chrono::days kAuthorityLife{3650};
constexpr std::chrono::days kNodeLife{30};

WallTime wall_time();

struct CertifiedKey {
  std::string certificate;
  std::string key;  // secret
};

// A new authority. kBadArgument: a name that cannot stand in the URI. kInternal: OpenSSL, with its reason.
Result<CertifiedKey> make_authority(std::string_view cluster, WallTime now, std::chrono::seconds life);
// A new key and certificate for the node. kBadArgument: a name, or an authority that cannot be read.
Result<CertifiedKey> certify_node(const CertifiedKey& authority, std::string_view cluster,
                                  std::string_view node, WallTime now, std::chrono::seconds life);

// The cluster of an authority that make_authority() made. kBadArgument: the text is none.
Result<std::string> cluster_of(std::string_view authority);

// The dates of a certificate: it is valid from one to the other.
struct Validity {
  WallTime from;
  WallTime until;
};
// The dates of the first certificate in the text. kBadArgument: the text has none.
Result<Validity> validity_of(std::string_view certificate);

// "spiffe://lab-a/node/node01"; cluster and node: letters, digits, '.', '-', '_'. kBadArgument.
Result<std::string> node_uri(std::string_view cluster, std::string_view node);
// The node of such a URI of that cluster. kDenied: another cluster, or no node.
Result<std::string> node_of_uri(std::string_view uri, std::string_view cluster);

}  // namespace muster::control
