// Entrance: the way in to the daemon: the socket, the runtime directory around it, and the lock on their
// place. It repairs them when they are removed.
//
// 1. Nobody opens or repairs a place without its lock, where a lock is possible. The lock outlives the files,
//    and a successor inherits it.
// 2. look() finds out whether the path still leads to the daemon's socket. If not, it makes directory and
//    socket anew. Clients that had connected before are in the former socket's queue, and are let in first.
//    A manager's socket is not replaced if its file was never seen: other processes may see it.
// 3. A foreign file in the way is named in the log. It is never removed, followed or changed.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/descriptor_store.hpp"
#include "daemon/supervisor/listen_socket.hpp"
#include "daemon/supervisor/place_lock.hpp"
#include "daemon/supervisor/runtime_directory.hpp"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace muster::supervisor {

// The service manager cannot restore its socket's path while the daemon runs. So a socket of ours takes that
// path, with the same rights. The manager's socket is kept and watched besides.
//
// Owns    lock, directory and socket, with the socket's file. A transient directory is removed at the end.
// Thread  the supervisor's loop. look() does not wait.
// Bound   at most three sockets: current, former, service manager's.
// Fails   open: as PlaceLock, RuntimeDirectory and ListenSocket. Not if a predecessor's socket came: its jobs
//         matter more, so faults are repaired or logged. look: never; an error that lasts is logged once in
//         kSilence.
class Entrance {
 public:
  static constexpr Nanos kLookPeriod = std::chrono::milliseconds(250);
  static constexpr Nanos kSilence = std::chrono::seconds(60);

  struct Options {
    std::string socket_path;
    ListenSocket::Rights rights;
    std::string directory;   // the socket's directory, which the daemon makes; empty: it makes none
    bool transient = false;  // the directory is removed at the end

    const std::string& place() const { return directory.empty() ? socket_path : directory; }
    // Clients only pass through the directory. They must not read it: a reader could hold its lock.
    mode_t directory_mode() const { return (rights.mode & 0077) == 0 ? 0700 : 0711; }
  };
  // What a predecessor has kept, as far as it came.
  struct Kept {
    std::optional<ListenSocket> socket;
    std::optional<ListenSocket> managers;  // besides a socket of ours that has taken its path
    std::optional<PlaceLock> lock;
    std::optional<RuntimeDirectory> directory;
  };

  static Result<Entrance> open(Options options, Kept kept);
  // Whether open() would work. The caller is a child of a daemon that may have the place itself: this opens
  // the socket and removes it again.
  static Status check(const Options& options);
  Entrance(Entrance&& other) noexcept = default;
  Entrance& operator=(Entrance&&) = delete;
  ~Entrance();

  // Call once in kLookPeriod, and keep_in() after it. True if the socket was replaced: watch the new one.
  bool look(Instant now);
  // The next connection, those of the former socket first. As ListenSocket::accept.
  Result<shm::Descriptor> accept() const;
  // A client waits at the former socket, which nobody watches any more.
  bool has_former_guest() const { return former_ && former_->has_guest(); }

  const ListenSocket& socket() const { return *socket_; }
  // The service manager's socket, while a socket of ours has taken its path.
  const ListenSocket* managers() const { return managers_ ? &*managers_ : nullptr; }
  // Whether the path is the manager's. Its unit then sets the rights.
  bool is_managers() const { return managers_ || socket_->whose() == ListenSocket::Path::kManagers; }
  // The file of the manager's socket has been seen: a successor is told so (believe_managers_stood()).
  bool managers_stood() const { return is_managers() && (managers_ || socket_->has_stood()); }
  void believe_managers_stood();
  // Makes `store` keep the present descriptors, and forget former ones. `known`: names that the manager has
  // already; those in use are taken out of it.
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
  std::optional<ListenSocket> former_;    // of ours, until no client waits there any more
  std::optional<ListenSocket> managers_;  // while its path is gone
  std::set<std::string> stored_;
  std::optional<Instant> said_;  // when the log last said that repair fails
};

}  // namespace muster::supervisor
