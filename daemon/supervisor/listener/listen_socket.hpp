// ListenSocket: the socket at which the daemon takes connections. It is the daemon's own, a predecessor's, or
// the service manager's (systemd.socket(5), ListenSequentialPacket=).
#pragma once

#include "api/shm/socket.hpp"

#include <optional>
#include <string>
#include <utility>

namespace muster::supervisor {

// Owns    the listening socket; the path too unless the service manager made it.
// Thread  a value; one at a time.
// Bound   the kernel's accept queue.
// Fails   open: as shm::Listener, and kDenied if the rights cannot be given. adopt: kProtocol (not a
//         listening socket of packets in order).
class ListenSocket {
 public:
  enum class Path { kOurs, kManagers };  // who removes its file
  // Rights of the socket's file. Without an owner or group the file keeps its own.
  struct Rights {
    mode_t mode = 0660;
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;
  };
  struct Folder {
    const shm::Descriptor* held = nullptr;  // the directory; the caller sees to its lock
    int lock_tries = shm::Listener::kLockTries;
  };

  static Result<ListenSocket> open(const std::string& path, const Rights& rights, Folder folder);
  static Result<ListenSocket> open(const std::string& path, const Rights& rights) {
    return open(path, rights, {});
  }
  // `name`: what name() returned in the process that opened it; any for a manager's socket. Its file may be
  // gone: see stands().
  static Result<ListenSocket> adopt(shm::Descriptor socket, Path whose, const std::string& name);

  // As shm::Listener::accept.
  Result<shm::Descriptor> accept() const { return listener_.accept(); }
  bool has_pending_client() const;  // a client waits
  // Whether the path leads to this socket; for the manager's: to the file that was there when the socket
  // came. If there was none, true: the manager may have made it in a mount namespace that we do not see.
  bool stands() const;
  // Whether its file has been seen.
  bool has_stood() const { return has_stood_; }
  // A predecessor has seen the file.
  void believe_it_stood() { has_stood_ = true; }
  // Sets the rights of the file, if it stands; the owner only if this process is root. kDenied.
  Status give(const Rights& rights) const;
  // The rights of the file, if it stands.
  std::optional<Rights> rights() const;

  const shm::Descriptor& descriptor() const { return listener_.descriptor(); }
  const std::string& path() const { return listener_.path(); }
  // The name under which it is kept. For a socket of ours it identifies the file at the path.
  const std::string& name() const { return name_; }
  static constexpr const char* kNamePrefix = "listen-";
  Path whose() const { return whose_; }

 private:
  ListenSocket(shm::Listener listener, std::string name, Path whose, std::optional<shm::FileId> file)
      : listener_(std::move(listener)),
        name_(std::move(name)),
        whose_(whose),
        file_(file),
        has_stood_(whose == Path::kOurs || file.has_value()) {}
  shm::Descriptor open_file(struct stat* facts) const;

  shm::Listener listener_;
  std::string name_;
  Path whose_;
  std::optional<shm::FileId> file_;
  bool has_stood_;
};

}  // namespace muster::supervisor
