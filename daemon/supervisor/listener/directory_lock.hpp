// DirectoryLock: allows at most one daemon for a place, whatever happens to the files there.
//
// It is an abstract socket (unix(7)) that is named after the place. No cleaner can remove it, and the kernel
// frees it when its last holder ends. A successor takes it over, as other descriptors.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/control/identity.hpp"

#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

namespace muster::supervisor {

// A place is a daemon's runtime directory. The lock names it by the parent directory (device and inode) and
// the last name, so two spellings are one place.
//
// Any local user may take an abstract name, and a container with the host's network too. So a holder counts
// only if it is root or this user, and in no container (daemon/supervisor/listener/identities.hpp). If its
// namespaces cannot be read, it counts if it is in this pid namespace. If
// another holds the name, that is logged, and there is no lock. There is also none if the holder's queue is
// full, or against a daemon in another network namespace. RuntimeDirectory has a lock of its own for these
// cases.
//
// Owns    the socket.
// Thread  a value; one at a time.
// Bound   kAskersMax waiting askers since the last answer().
// Fails   take: kDuplicate (another daemon, with its process), kNotFound (no directory above the place).
class DirectoryLock {
 public:
  static constexpr int kAskersMax = 1024;
  static constexpr int kTries = 200;  // a millisecond apart: the holder may be about to end
  // "lock-…": the name under which the lock of that place is kept for a successor. kNotFound.
  static Result<std::string> name_of(const std::string& place);
  static constexpr const char* kNamePrefix = "lock-";

  static Result<DirectoryLock> take(const std::string& place, int tries = kTries);
  // Logs nothing; nullopt if anybody holds it, also another user.
  static std::optional<DirectoryLock> take_if_free(const std::string& place);
  // Takes over a lock that a predecessor kept under that name. From now on this process is its holder.
  static std::optional<DirectoryLock> adopt(shm::Descriptor socket, const std::string& name);

  struct Holder {
    control::Identity who;
    pid_t pid = 0;  // 0: the process is not visible from here
  };
  // The holder, if it counts.
  static std::optional<Holder> holder_of(const std::string& place);

  bool held() const { return socket_.valid(); }
  // Closes the connections of askers, which wait in the socket's queue.
  void answer() const;
  const std::string& name() const { return name_; }
  const shm::Descriptor& descriptor() const { return socket_; }

 private:
  DirectoryLock(shm::Descriptor socket, std::string name)
      : socket_(std::move(socket)), name_(std::move(name)) {}

  shm::Descriptor socket_;
  std::string name_;
};

}  // namespace muster::supervisor
