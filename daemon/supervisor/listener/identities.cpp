#include "daemon/supervisor/listener/identities.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Account;
using control::Identity;

// Linux 6.11; older headers lack the names.
constexpr unsigned long kPidfdGetPidNamespace = _IO(0xFF, 5);
constexpr unsigned long kPidfdGetUserNamespace = _IO(0xFF, 9);
constexpr int kNestedMax = 64;  // namespaces in each other: the kernel allows 32

std::uint64_t number_of(const shm::Descriptor& space) {
  struct stat facts {};
  return space.valid() && fstat(space.get(), &facts) == 0 ? facts.st_ino : 0;
}

shm::Descriptor of_process(const shm::PeerIdentity& peer, unsigned long request, const char* name) {
  shm::Descriptor space(ioctl(peer.pidfd.get(), request, 0));
  if (space.valid() || peer.pid <= 0) return space;
  const std::string path = fmt::format("/proc/{}/ns/{}", peer.pid, name);
  space.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // The number may be another process's by now: the caller looks at the pidfd afterwards.
  return space;
}

// The namespace that lies right below `own` and holds `space`; `space` itself if the kernel does not say.
shm::Descriptor outermost(const shm::Descriptor& space, std::uint64_t own) {
  shm::Descriptor here(fcntl(space.get(), F_DUPFD_CLOEXEC, 3));
  for (int i = 0; i < kNestedMax; ++i) {
    shm::Descriptor above(ioctl(here.get(), NS_GET_PARENT));
    if (!above.valid() || number_of(above) == own) break;
    here = std::move(above);
  }
  return here;
}

// The user who made it; root if the kernel does not say.
uid_t owner_of(const shm::Descriptor& user_namespace) {
  uid_t owner = 0;
  return ioctl(user_namespace.get(), NS_GET_OWNER_UID, &owner) == 0 ? owner : 0;
}

// Whether that user has made the user namespace, and each one around it up to the daemon's own. Otherwise he
// may be a user of a container who has the same number.
bool all_made_by(uid_t uid, const shm::Descriptor& user_namespace, std::uint64_t own) {
  shm::Descriptor here(fcntl(user_namespace.get(), F_DUPFD_CLOEXEC, 3));
  for (int i = 0; i < kNestedMax && owner_of(here) == uid; ++i) {
    shm::Descriptor above(ioctl(here.get(), NS_GET_PARENT));
    if (!above.valid()) return false;
    if (number_of(above) == own) return true;
    here = std::move(above);
  }
  return false;
}

// Containers that an ordinary user has made count to him. Those of a governor have one share, not a
// governor's.
Account of_containers(uid_t owner) {
  return control::is_governor(owner, geteuid()) ? Account(owner, Account::kOwnContainers) : Account(owner);
}

std::uint64_t own_number(const char* path) {
  return number_of(shm::Descriptor(::open(path, O_RDONLY | O_CLOEXEC)));
}

}  // namespace

Identities::Identities(Rule rule)
    : rule_(rule),
      own_pid_namespace_(own_number("/proc/self/ns/pid")),
      own_user_namespace_(own_number("/proc/self/ns/user")) {}

// All clients of one place share its first descriptors; those of later clients are closed again.
std::shared_ptr<const control::Identity::Handles> Identities::hold(const Place& place,
                                                                   control::Identity::Handles handles) {
  if (auto held = places_[place].lock()) return held;
  std::erase_if(places_, [](const auto& entry) { return entry.second.expired(); });
  auto fresh = std::make_shared<const control::Identity::Handles>(std::move(handles));
  places_[place] = fresh;
  return fresh;
}

Identity Identities::of(const shm::PeerIdentity& peer) {
  Identity who(peer.uid);
  if (rule_ == Rule::kUidAlone) return who;
  control::Identity::Handles handles{of_process(peer, kPidfdGetPidNamespace, "pid"),
                                     of_process(peer, kPidfdGetUserNamespace, "user")};
  const std::uint64_t pid = number_of(handles.pid_namespace);
  const std::uint64_t user = number_of(handles.user_namespace);
  if (pid == 0 || user == 0 || shm::has_ended(peer.pidfd)) {
    who.pid_namespace = who.user_namespace = Identity::kUnknown;
    who.account =
        Account(peer.uid, Account::kOwnContainers);  // he may not be this node's user of that number
    return who;
  }
  const bool same_pids = pid == own_pid_namespace_;
  const bool same_users = user == own_user_namespace_;
  if (same_pids && same_users) return who;
  if (same_pids && peer.uid != 0 && all_made_by(peer.uid, handles.user_namespace, own_user_namespace_))
    return who;
  who.pid_namespace = same_pids ? 0 : pid;
  who.user_namespace = same_users ? 0 : user;
  who.account =
      same_pids ? account_of_users(handles.user_namespace, 0) : account_of_pids(handles.pid_namespace);
  who.handles = hold({pid, user}, std::move(handles));
  return who;
}

// `container`: what the account is called if root has made it; 0: after the namespace.
Account Identities::account_of_users(const shm::Descriptor& user_namespace, std::uint64_t container) const {
  const shm::Descriptor users = outermost(user_namespace, own_user_namespace_);
  const uid_t owner = owner_of(users);
  if (owner != 0) return of_containers(owner);
  return Account(0, container != 0 ? container : number_of(users));
}

// The maker of the outermost pid namespace is the maker of the container. Namespaces inside it change
// nothing.
Account Identities::account_of_pids(const shm::Descriptor& pid_namespace) const {
  const shm::Descriptor pids = outermost(pid_namespace, own_pid_namespace_);
  const shm::Descriptor users(ioctl(pids.get(), NS_GET_USERNS));
  if (!users.valid() || number_of(users) == own_user_namespace_) return Account(0, number_of(pids));
  return account_of_users(users, number_of(pids));
}

bool Identities::may_look() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  return syscall(SYS_capget, &header, sets) == 0 &&
         (sets[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE)) != 0;
}

bool Identities::governs(const PendingClient& client) {
  return client.door == Door::kControl && control::is_governor(client.who, geteuid());
}

}  // namespace muster::supervisor
