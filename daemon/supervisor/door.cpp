#include "daemon/supervisor/door.hpp"

#include "daemon/supervisor/socket_role.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

// Which file is at the path, as a name; empty if it is no socket.
std::string file_at(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0 || !S_ISSOCK(facts.st_mode)) return "";
  return fmt::format("{}{:x}-{:x}", Door::kNamePrefix, facts.st_dev, facts.st_ino);
}

}  // namespace

Result<Door> Door::open(const std::string& path, shm::Listener::Options options) {
  MUSTER_ASSIGN_OR_RETURN(shm::Listener listener, shm::Listener::open(path, options));
  Door door;
  door.opened_.emplace(std::move(listener));
  door.path_ = path;
  door.name_ = file_at(path);
  return door;
}

Result<Door> Door::adopt(shm::Descriptor socket, Path whose, const std::string& name) {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  if (!has_role(socket, SocketRole::kListens) ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      bytes <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0')
    return fail(Code::kProtocol,
                "the socket that came with the start is not one to listen at; the unit needs "
                "ListenSequentialPacket= with a path");
  const std::size_t room = bytes - offsetof(sockaddr_un, sun_path);
  Door door;
  door.path_.assign(address.sun_path, strnlen(address.sun_path, room));
  door.name_ = file_at(door.path_);
  if (door.name_.empty() || (whose == Path::kOurs && door.name_ != name))
    return fail(Code::kProtocol, "the socket's file at {} is gone, or another's", door.path_);
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  if (whose == Path::kManagers) door.name_ = name;  // a successor is to see whose it is
  door.adopted_ = std::move(socket);
  door.whose_ = whose;
  return door;
}

Door::~Door() {
  if (adopted_.valid() && whose_ == Path::kOurs && file_at(path_) == name_) unlink(path_.c_str());
}

Result<shm::Descriptor> Door::accept() const {
  if (opened_) return opened_->accept();
  shm::Descriptor connection(accept4(adopted_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) return connection;
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
    return fail(Code::kPending, "no connection waits at {}", path_);
  return fail(Code::kNoResource, "accepting at {}: {}; raise RLIMIT_NOFILE or fs.file-max", path_,
              std::strerror(errno));
}

}  // namespace muster::supervisor
