// `muster certs`: an authority for a lab's cluster, and certificates of its nodes. Needs no daemon. A cluster
// with an authority of its own does not need this command.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/control/link/certificate.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct CertsQuestion {
  std::string folder = ".";
  std::string cluster = "muster";  // init
  std::vector<std::string> nodes;  // node, check
  std::int64_t days = 0;           // 0: as control::kAuthorityLife or kNodeLife
};

// Writes authority.pem and authority-key.pem. An authority that is there already is kept, and refused.
int run_certs_init(const CertsQuestion& question, control::WallTime now, Output output);
// Writes NODE.pem and NODE-key.pem of each node, also over older ones.
int run_certs_node(const CertsQuestion& question, control::WallTime now, Output output);
// Lets each node shake hands with the next one, in this process, by the files of both. kFailed if one is
// refused.
int run_certs_check(const CertsQuestion& question, control::WallTime now, Output output);

}  // namespace muster::cli
