#include "daemon/supervisor/listener/listen_socket.hpp"

#include "daemon/supervisor/base/socket_role.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

std::string name_of(const shm::FileId& file) {
  return fmt::format("{}{:x}-{:x}", ListenSocket::kNamePrefix, file.device, file.inode);
}

}  // namespace

Result<ListenSocket> ListenSocket::open(const std::string& path, const Rights& rights, Folder folder) {
  shm::Listener::Options options;
  options.mode = rights.mode;
  options.folder = folder.held;
  options.lock_tries = folder.lock_tries;
  MUSTER_ASSIGN_OR_RETURN(shm::Listener listener, shm::Listener::open(path, options));
  const auto file = listener.file();
  ListenSocket socket(std::move(listener), name_of(*file), Path::kOurs, file);
  MUSTER_RETURN_IF_ERROR(socket.give(rights));
  return socket;
}

Result<ListenSocket> ListenSocket::adopt(shm::Descriptor socket, Path whose, const std::string& name) {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  if (!is_listening(socket) ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      bytes <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0')
    return fail(Code::kProtocol,
                "the socket that came with the start is not one to listen at; the unit needs "
                "ListenSequentialPacket= with a path");
  const std::size_t room = bytes - offsetof(sockaddr_un, sun_path);
  const std::string path(address.sun_path, strnlen(address.sun_path, room));
  auto file = shm::socket_at(path);
  if (whose == Path::kOurs && file && name_of(*file) != name) file.reset();  // another socket's file by now
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  const auto removed = whose == Path::kOurs ? file : std::nullopt;
  // The manager's socket keeps its name: a successor must see whose it is.
  return ListenSocket(shm::Listener(std::move(socket), path, removed), name, whose, file);
}

bool ListenSocket::has_pending_client() const {
  pollfd entry{descriptor().get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

bool ListenSocket::stands() const {
  return !has_stood_ || (file_ && shm::socket_at(path()) == file_);
}

// Opens the file of this socket, not a later one at its path. Invalid: it is gone.
shm::Descriptor ListenSocket::open_file(struct stat* facts) const {
  shm::Descriptor file(::open(path().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  const bool same = file_ && file.valid() && fstat(file.get(), facts) == 0 && shm::socket_of(*facts) == file_;
  if (!same) file.reset();
  return file;
}

std::optional<ListenSocket::Rights> ListenSocket::rights() const {
  struct stat facts {};
  if (!open_file(&facts).valid()) return std::nullopt;
  return Rights{facts.st_mode & 07777, facts.st_uid, facts.st_gid};
}

Status ListenSocket::give(const Rights& rights) const {
  struct stat facts {};
  const shm::Descriptor file = open_file(&facts);
  if (!file.valid()) return {};
  if (!shm::change_mode(file, rights.mode))
    return failure(Code::kDenied, "{} cannot be given mode {:04o}: {}; start as the user whose it is", path(),
                   rights.mode, std::strerror(errno));
  const uid_t uid = geteuid() == 0 ? rights.uid.value_or(facts.st_uid) : facts.st_uid;
  const gid_t gid = rights.gid.value_or(facts.st_gid);
  if (uid == facts.st_uid && gid == facts.st_gid) return {};
  if (fchownat(file.get(), "", uid, gid, AT_EMPTY_PATH) == 0) return {};
  return failure(Code::kDenied, "{} cannot be given to user {} and group {}: {}; start as root", path(), uid,
                 gid, std::strerror(errno));
}

}  // namespace muster::supervisor
