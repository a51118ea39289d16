// Door: the socket at which the daemon takes connections: one of its own, a predecessor's, or the service
// manager's (systemd.socket(5), ListenSequentialPacket=).
#pragma once

#include "api/shm/socket.hpp"

#include <optional>
#include <string>

namespace muster::supervisor {

// Owns    the listening socket; the path too unless the service manager made it.
// Thread  a value; one at a time.
// Bound   the kernel's accept queue.
// Fails   open: as shm::Listener. adopt: kProtocol (no listening socket of datagrams in order, its
//         file is gone or another's).
class Door {
 public:
  enum class Path { kOurs, kManagers };  // whose file it is to remove

  static Result<Door> open(const std::string& path, shm::Listener::Options options);
  // `name` is what name() said in the process that opened it; of the manager's sockets any will do.
  static Result<Door> adopt(shm::Descriptor socket, Path whose, const std::string& name);
  Door(Door&& other) noexcept = default;
  Door& operator=(Door&&) = delete;
  ~Door();

  // The next connection. kPending if none waits; kNoResource if this process or system is out of descriptors.
  Result<shm::Descriptor> accept() const;
  const shm::Descriptor& descriptor() const { return opened_ ? opened_->descriptor() : adopted_; }
  const std::string& path() const { return path_; }
  // What it is kept as. Of our own it says which file the path is to lead to.
  const std::string& name() const { return name_; }
  static constexpr const char* kNamePrefix = "listen-";
  Path whose() const { return whose_; }

 private:
  Door() = default;

  std::optional<shm::Listener> opened_;
  shm::Descriptor adopted_;
  std::string path_;
  std::string name_;
  Path whose_ = Path::kOurs;
};

}  // namespace muster::supervisor
