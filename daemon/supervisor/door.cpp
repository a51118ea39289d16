#include "daemon/supervisor/door.hpp"

#include "api/shm/segment.hpp"
#include "daemon/supervisor/socket_role.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr auto kSame = static_cast<uid_t>(-1);  // chown(2): the owner stays

// Which file this is, as a name; empty if it is no socket.
std::string name_of(const struct stat& facts) {
  if (!S_ISSOCK(facts.st_mode)) return "";
  return fmt::format("{}{:x}-{:x}", Door::kNamePrefix, facts.st_dev, facts.st_ino);
}
std::string file_at(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0 ? name_of(facts) : "";
}

Status group_denied(const std::string& path, gid_t gid, int error) {
  return failure(Code::kDenied,
                 "{} cannot be given to group {} (node.group): {}; start as root or as its member", path, gid,
                 std::strerror(error));
}

}  // namespace

// A memory file stands for the socket: who may give one away may give the other.
Status Door::may_give(const std::string& path, const Rights& rights) {
  if (!rights.gid) return {};
  const shm::Descriptor file = shm::open_memory_file("muster-group");
  if (!file.valid())
    return failure(Code::kNoResource, "memfd_create: {}; raise the open-files limit", std::strerror(errno));
  return fchown(file.get(), kSame, *rights.gid) == 0 ? Status() : group_denied(path, *rights.gid, errno);
}

Result<Door> Door::open(const std::string& path, const Rights& rights, Folder folder) {
  shm::Listener::Options options;
  options.mode = rights.mode;
  options.folder = folder.held;
  options.lock_tries = folder.lock_tries;
  MUSTER_ASSIGN_OR_RETURN(shm::Listener listener, shm::Listener::open(path, options));
  Door door;
  door.opened_.emplace(std::move(listener));
  door.path_ = path;
  door.name_ = door.file_ = file_at(path);
  MUSTER_RETURN_IF_ERROR(door.give(rights));
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
  door.name_ = name;  // of the manager's too: a successor is to see whose it is
  door.file_ = whose == Path::kOurs ? name : file_at(door.path_);
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  door.adopted_ = std::move(socket);
  door.whose_ = whose;
  return door;
}

Door::~Door() {
  if (adopted_.valid() && whose_ == Path::kOurs && stands()) unlink(path_.c_str());
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

bool Door::has_guest() const {
  pollfd entry{descriptor().get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

bool Door::stands() const {
  return !file_.empty() && file_at(path_) == file_;
}

std::optional<Door::Rights> Door::rights() const {
  struct stat facts {};
  if (lstat(path_.c_str(), &facts) != 0 || name_of(facts) != file_ || file_.empty()) return std::nullopt;
  return Rights{facts.st_mode & 07777, facts.st_uid, facts.st_gid};
}

// By the folder's descriptor: what comes in the folder's place meanwhile is not touched.
Status Door::give(const Rights& rights) const {
  const std::filesystem::path path(path_);
  const std::string above = path.has_parent_path() ? path.parent_path().string() : ".";
  const shm::Descriptor folder(::open(above.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string file = path.filename();
  struct stat facts {};
  if (!folder.valid() || fstatat(folder.get(), file.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0 ||
      name_of(facts) != file_)
    return {};
  if (fchmodat(folder.get(), file.c_str(), rights.mode, 0) != 0)
    return failure(Code::kDenied,
                   "{} cannot be given mode {:04o} (node.socket_mode): {}; start as the user whose it is",
                   path_, rights.mode, std::strerror(errno));
  const uid_t uid = geteuid() == 0 ? rights.uid.value_or(facts.st_uid) : facts.st_uid;
  const gid_t gid = rights.gid.value_or(facts.st_gid);
  if (uid == facts.st_uid && gid == facts.st_gid) return {};
  if (fchownat(folder.get(), file.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) == 0) return {};
  return group_denied(path_, gid, errno);
}

}  // namespace muster::supervisor
