// PlaceLock: at most one daemon for a place, whatever becomes of the files there.
//
// An abstract socket (unix(7)) that is named after the place: no cleaner can take it away, and the kernel
// takes it back when the last process that holds it ends. It goes on to a successor as other descriptors do.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <optional>
#include <string>

#include <sys/types.h>

namespace muster::supervisor {

// A place is a path that a daemon makes: its runtime directory, or its socket where that lies elsewhere. It
// is known by the directory above it (device and inode) and its last name, so that two ways of writing it are
// one.
//
// Any local user may take an abstract name. So a holder counts if it is root's or this user's, by the
// kernel's word; another's is told in the log, and there is no lock then. Nor is there one where so many ask
// that the holder's queue is full, and against a daemon in another network namespace: the lock on the
// directory stands beside (RuntimeDirectory).
//
// Owns    the socket.
// Thread  a value; one at a time.
// Bound   kAskersMax who have asked since answer().
// Fails   take: kDuplicate (another daemon, with its process), kNotFound (no directory above the place).
class PlaceLock {
 public:
  static constexpr int kAskersMax = 1024;
  static constexpr int kTries = 200;  // a millisecond apart: for one that is about to end
  // "lock-…": how the lock of that place is kept for a successor. kNotFound.
  static Result<std::string> name_of(const std::string& place);
  static constexpr const char* kNamePrefix = "lock-";

  static Result<PlaceLock> take(const std::string& place, int tries = kTries);
  // Logs nothing; nullopt if anybody holds it, counting or not.
  static std::optional<PlaceLock> take_if_free(const std::string& place);
  // One that a predecessor kept under that name. From now on this process is who holds it.
  static std::optional<PlaceLock> adopt(shm::Descriptor socket, const std::string& name);

  struct Holder {
    uid_t uid = 0;
    pid_t pid = 0;  // 0: a process that cannot be seen from here
  };
  // The holder, if it is root or this user.
  static std::optional<Holder> holder_of(const std::string& place);

  bool held() const { return socket_.valid(); }
  // Lets go of those who asked: each waits in the socket's queue.
  void answer() const;
  const std::string& name() const { return name_; }
  const shm::Descriptor& descriptor() const { return socket_; }

 private:
  PlaceLock(shm::Descriptor socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}

  shm::Descriptor socket_;
  std::string name_;
};

}  // namespace muster::supervisor
