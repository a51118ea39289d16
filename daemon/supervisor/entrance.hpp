// Entrance: the way in to the daemon, and its healing: the socket, the runtime directory around it, and the
// lock on their place.
//
// 1. Nobody opens or heals a place without its lock, where there can be one. The lock outlives the files, and
//    goes on to a successor as they do.
// 2. look() finds out whether the path still leads to the daemon's socket. If not, it makes directory and
//    socket anew. Clients that had connected before are in the former socket's queue, and are let in first.
//    A manager's socket is not healed if its file was never seen: other processes may see it.
// 3. What is in the way and not the daemon's is named in the log, and never removed, followed or changed.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/descriptor_store.hpp"
#include "daemon/supervisor/listen_socket.hpp"
#include "daemon/supervisor/place_lock.hpp"
#include "daemon/supervisor/runtime_directory.hpp"

#include <optional>
#include <set>
#include <string>

namespace muster::supervisor {

// The service manager cannot be given its socket's path back while the daemon runs. So one of our own takes
// the place of its file, with the same rights. The manager's is held and watched beside.
//
// Owns    lock, directory and socket, with the socket's file; the directory too where it is transient.
// Thread  the supervisor's loop. look() does not wait.
// Bound   at most three sockets: current, former, service manager's.
// Fails   open: as PlaceLock, RuntimeDirectory and ListenSocket, but not where a predecessor's socket came:
// its jobs
//         matter more, and what is wrong is healed or logged. look never: an error is logged once in
//         kSilence while it lasts.
class Entrance {
 public:
  static constexpr Nanos kLookPeriod = std::chrono::milliseconds(250);
  static constexpr Nanos kSilence = std::chrono::seconds(60);

  struct Options {
    std::string socket_path;
    ListenSocket::Rights rights;
    std::string directory;   // that the socket lies in and the daemon makes; empty: it makes none
    bool transient = false;  // the directory goes with the daemon

    const std::string& place() const { return directory.empty() ? socket_path : directory; }
    // Clients only pass through it. They must not read it: a reader could hold its lock.
    mode_t directory_mode() const { return (rights.mode & 0077) == 0 ? 0700 : 0711; }
  };
  // A predecessor's, each where it came.
  struct Kept {
    std::optional<ListenSocket> socket;
    std::optional<ListenSocket> managers;  // beside a socket of our own that has taken its path
    std::optional<PlaceLock> lock;
    std::optional<RuntimeDirectory> directory;
  };

  static Result<Entrance> open(Options options, Kept kept);
  // Whether open() would work in this process, which is a child of a daemon that may have the place itself:
  // opens the socket and takes it away again.
  static Status check(const Options& options);
  Entrance(Entrance&& other) noexcept = default;
  Entrance& operator=(Entrance&&) = delete;
  ~Entrance();

  // Once in kLookPeriod, with keep_in() behind it. True if the socket is another one now: it is to be watched
  // in place of the former.
  bool look(Instant now);
  // The next connection, those of the former socket first. As ListenSocket::accept.
  Result<shm::Descriptor> accept() const;
  // One waits at the former socket, which nobody watches any more.
  bool has_former_guest() const { return former_ && former_->has_guest(); }

  const ListenSocket& socket() const { return *socket_; }
  // The service manager's socket, while one of our own has taken its path.
  const ListenSocket* managers() const { return managers_ ? &*managers_ : nullptr; }
  // Whether the path is the manager's, and so its rights are those that its unit says.
  bool is_managers() const { return managers_ || socket_->whose() == ListenSocket::Path::kManagers; }
  // The file of the manager's socket has been seen: what a successor is told, and told here.
  bool managers_stood() const { return is_managers() && (managers_ || socket_->has_stood()); }
  void believe_managers_stood();
  // Has `store` keep what there is now, and forget what was. `known` are names that the manager has already,
  // which are taken out of it.
  void keep_in(DescriptorStore& store, std::set<std::string>& known);

 private:
  explicit Entrance(Options options) : options_(std::move(options)) {}
  Status take_place(Kept& kept);
  Result<ListenSocket> heal();
  bool directory_holds(const std::string& socket_path) const;
  ListenSocket::Folder folder(const std::string& socket_path, int lock_tries) const;

  Options options_;
  std::optional<PlaceLock> lock_;
  std::optional<RuntimeDirectory> directory_;
  std::optional<ListenSocket> socket_;
  std::optional<ListenSocket> former_;    // of our own, until nobody waits there any more
  std::optional<ListenSocket> managers_;  // whose path is gone
  std::set<std::string> stored_;
  std::optional<Instant> said_;  // that it cannot be healed
};

}  // namespace muster::supervisor
