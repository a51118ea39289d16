// Identities: the identity of a connected process (daemon/control/identity.hpp).
#pragma once

#include "api/shm/peer.hpp"
#include "daemon/control/identity.hpp"
#include "daemon/supervisor/listener/door.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace muster::supervisor {

// A connected client whose first message has not come yet, or that waits.
struct PendingClient {
  shm::PeerIdentity process;
  control::Identity who;
  Door door = Door::kRanks;
};

// Owns    nothing but a list of the places that clients and jobs hold: two of one place share its
//         descriptors.
// Thread  the supervisor's loop.
// Bound   a few system calls a question. kPendingPlaces places, more than jobs have, are counted on.
// Fails   never: a process whose namespaces cannot be read is foreign.
class Identities {
 public:
  // kUidAlone: a private daemon serves one run of one user, wherever its ranks are.
  enum class Rule : std::uint8_t { kWhereHeIs, kUidAlone };
  static constexpr std::uint64_t kPendingPlaces = 32;
  explicit Identities(Rule rule);

  control::Identity of(const shm::PeerIdentity& peer);
  // Whether this process may read the namespaces of all others (CAP_SYS_PTRACE).
  static bool may_look();
  // A client that came to the control socket, and whose identity may govern.
  static bool governs(const PendingClient& client);

 private:
  using Place = std::pair<std::uint64_t, std::uint64_t>;
  control::Account account_of_users(const shm::Descriptor& user_namespace, std::uint64_t container) const;
  control::Account account_of_pids(const shm::Descriptor& pid_namespace) const;
  std::shared_ptr<const control::Identity::Handles> hold(const Place& place,
                                                         control::Identity::Handles handles);

  Rule rule_;
  std::uint64_t own_pid_namespace_ = 0;
  std::uint64_t own_user_namespace_ = 0;
  std::map<Place, std::weak_ptr<const control::Identity::Handles>> places_;
};

}  // namespace muster::supervisor
