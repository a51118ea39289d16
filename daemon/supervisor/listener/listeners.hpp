// Listeners: the way in to the daemon: two sockets, the runtime directory around them, and the lock on their
// place. It repairs them when they are removed.
//
// 1. Nobody opens or repairs a place without its lock, where a lock is possible. The lock outlives the files,
//    and a successor takes it over.
// 2. look() finds out whether the paths still lead to the daemon's sockets. If not, it makes directory and
//    socket anew. Clients that had connected before are in the former socket's queue, and are let in first.
//    A manager's socket is not replaced if its file was never seen: other processes may see it.
// 3. A foreign file in the way is named in the log. It is never removed, followed or changed.
// 4. look() also restores owner and mode of the ranks' folder and of a socket of ours in it: root of a
//    container that may write there can change them.
// 5. The ranks' socket is the only file in its folder, which containers mount, unless the settings put it at
//    another place. Governors use the control socket, which no container has.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/listener/directory_lock.hpp"
#include "daemon/supervisor/listener/door.hpp"
#include "daemon/supervisor/listener/listen_socket.hpp"
#include "daemon/supervisor/listener/runtime_directory.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace muster::supervisor {

// The service manager cannot restore its socket's path while the daemon runs. So a socket of ours takes that
// path, with the same rights. The manager's socket is kept and watched besides.
//
// Owns    lock, directory and sockets, with the sockets' files. A transient directory is removed at the end.
// Thread  the supervisor's loop. look() does not wait.
// Bound   at most two sockets for each door, current and former, and the service manager's.
// Fails   open: as DirectoryLock, RuntimeDirectory and ListenSocket. Not if a predecessor's socket came: its
//         jobs matter more, so faults are repaired or logged. look: never; an error that lasts is logged once
//         in kSilence.
class Listeners {
 public:
  static constexpr Nanos kLookPeriod = std::chrono::milliseconds(250);
  static constexpr Nanos kSilence = std::chrono::seconds(60);
  static constexpr std::array kDoors{Door::kRanks, Door::kControl};

  struct Options {
    std::string directory;
    std::string ranks_socket;
    RuntimeDirectory::Access access;
    bool transient = false;  // the directory is removed at the end

    std::string path_of(Door door) const;
  };
  // The descriptors that a predecessor has kept, as far as they came.
  struct Kept {
    struct Sockets {
      std::optional<ListenSocket> socket;
      std::optional<ListenSocket> managers;  // besides a socket of ours that has taken its path
    };
    Sockets ranks, control;
    std::optional<DirectoryLock> lock;
    std::optional<RuntimeDirectory> directory;
  };

  static Result<Listeners> open(Options options, Kept kept);
  // Whether open() would work. The caller is a child of a daemon that may have the place itself: this opens
  // the sockets and removes them again.
  static Status check(const Options& options);
  Listeners(Listeners&& other) noexcept = default;
  Listeners& operator=(Listeners&&) = delete;
  ~Listeners();

  // Call once in kLookPeriod, and keep_in() after it. True if a socket was replaced: watch the new ones.
  bool look(Instant now);
  // The next connection, those of the former socket first. As ListenSocket::accept.
  Result<shm::Descriptor> accept(Door door) const;
  // A pending client waits at the former socket, which nobody watches any more.
  bool has_former_client(Door door) const;

  // nullptr: a foreign file is in the way of the control socket, or its directory is gone.
  const ListenSocket* socket(Door door) const;
  const ListenSocket& socket() const { return *ranks_.socket; }
  const std::string& directory() const { return options_.directory; }
  // The service manager's socket, while a socket of ours has taken its path.
  const ListenSocket* managers(Door door) const;
  // The files of the manager's sockets have been seen: a successor is told so (believe_managers_stood()).
  bool managers_stood() const;
  void believe_managers_stood();
  // Makes `store` keep the present descriptors, and forget former ones. `known`: names that the manager has
  // already; those in use are taken out of it.
  void keep_in(DescriptorStore& store, std::set<std::string>& known);

 private:
  struct Way {
    ListenSocket::Rights rights;
    std::optional<ListenSocket> socket;
    std::optional<ListenSocket> former;    // of ours, until no client waits there any more
    std::optional<ListenSocket> managers;  // while its path is gone

    bool stands() const { return socket && socket->stands(); }
    bool has_managers() const { return socket && socket->whose() == ListenSocket::Path::kManagers; }
    // Whether the path is the manager's. Its unit then sets the rights.
    bool is_managers() const { return managers || has_managers(); }
  };
  explicit Listeners(Options options) : options_(std::move(options)) {}
  Way& way(Door door) { return door == Door::kRanks ? ranks_ : control_; }
  const Way& way(Door door) const { return door == Door::kRanks ? ranks_ : control_; }
  Status take_place(Kept& kept);
  Result<ListenSocket> open_at(const std::string& path, const ListenSocket::Rights& rights, int tries) const;
  Result<bool> restore_ranks() const;
  void mend_rights(Instant now);
  Status heal();
  Status replace(Door door);

  Options options_;
  std::optional<DirectoryLock> lock_;
  std::optional<RuntimeDirectory> directory_;
  Way ranks_{{0666, std::nullopt, std::nullopt}, {}, {}, {}};
  Way control_{{0600, std::nullopt, std::nullopt}, {}, {}, {}};
  std::set<std::string> stored_;
  std::optional<Instant> said_;  // when the log last said that repair fails
  std::optional<Instant> said_of_rights_;
};

}  // namespace muster::supervisor
