// Identity: a user, and the place where he is (D32).
//
// A process in another pid namespace than the daemon's is foreign: it is neither the host's user of that
// number nor that of another container. So is a process in another user namespace, unless that namespace lies
// in the daemon's pid namespace and belongs to the same user, not root (Apptainer, `unshare -U`).
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json_fwd.hpp>

namespace muster::control {

// The account to which a share of the node counts. A container has one account, whatever users are in it.
// Containers that an ordinary user makes count to that user: nobody gets more by more namespaces.
struct Account {
  // NOLINTNEXTLINE(google-explicit-constructor): a user of this node is an account
  constexpr Account(std::uint32_t user = 0) : uid(user) {}
  constexpr Account(std::uint32_t user, std::uint64_t of) : uid(user), container(of) {}
  // All containers that the daemon's own user has made without root's help.
  static constexpr std::uint64_t kOwnContainers = 1;

  std::uint32_t uid = 0;
  std::uint64_t container = 0;  // 0: none; else kOwnContainers, or the number of its outermost namespace
  friend auto operator<=>(const Account&, const Account&) = default;
};
// "user 1000", "container 4026532190", "containers of user 1000".
std::string text_of(const Account& account);

struct Identity {
  // Descriptors of a place's namespaces. While they are open, the kernel gives their numbers to no other.
  struct Handles {
    shm::Descriptor pid_namespace;
    shm::Descriptor user_namespace;
  };
  // NOLINTNEXTLINE(google-explicit-constructor): a user of this node is an identity
  Identity(std::uint32_t user = 0) : uid(user), account(user) {}

  // Numbers of namespaces whose number could not be read.
  static constexpr std::uint64_t kUnknown = UINT64_MAX;

  std::uint32_t uid = 0;            // as the daemon's user namespace numbers it
  std::uint64_t pid_namespace = 0;  // 0 in both: the daemon's own place
  std::uint64_t user_namespace = 0;
  Account account;
  std::shared_ptr<const Handles> handles;  // of a foreign place; may be lost in a restart

  bool is_home() const { return pid_namespace == 0 && user_namespace == 0; }
  bool is_known() const { return pid_namespace != kUnknown && user_namespace != kUnknown; }
  // No process is in his container any more, and none can come (Linux 6.11; before that it is not known).
  bool is_gone() const;
  // The same user at the same place. Two whose place is not known may be two.
  friend bool operator==(const Identity& a, const Identity& b) {
    return a.is_known() && a.uid == b.uid && a.pid_namespace == b.pid_namespace &&
           a.user_namespace == b.user_namespace;
  }
};
// "user 1000"; "user 0 of container 4026532190".
std::string text_of(const Identity& identity);
// Root and the daemon's own user, on this node and in no container.
inline bool is_governor(const Identity& identity, std::uint32_t own) {
  return identity.is_home() && (identity.uid == 0 || identity.uid == own);
}

// kDenied: nobody could tell his jobs from another's. A job key can.
Status check_known(const Identity& identity);

// The identity behind a request, and whether it may act on what belongs to others.
struct Actor {
  // NOLINTNEXTLINE(google-explicit-constructor): an actor without a key is his identity alone
  Actor(Identity identity, bool may_govern = false, std::string shown = {})
      : who(std::move(identity)), governs(may_govern), key(std::move(shown)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as for an identity
  Actor(std::uint32_t user) : who(user) {}

  Identity who;
  bool governs = false;
  std::string key;  // the digest of the job key that he shows; empty: he shows none
};
constexpr std::uint32_t kNoUid = UINT32_MAX;  // no user has this number
constexpr std::size_t kKeyDigestChars = 32;   // 128 bits, in hex

// Tells the jobs of one name apart; empty for the daemon's own user, whose number is `own`, if he shows no
// key. "1000"; "0.4026532190-4026531837"; "key.9f86d081884c7d659a2feaa0c55ad015".
std::string scope_of(const Actor& actor, std::uint32_t own);
// The digest in the scope of a job that has a key; else empty.
std::string_view key_in(std::string_view scope);

// Adds the fields of an identity to an object. Those of a user of this node are "owner_uid" alone.
void write_identity(const Identity& identity, nlohmann::json& json);
// kBadArgument naming the field.
Result<Identity> read_identity(const nlohmann::json& json);

}  // namespace muster::control
