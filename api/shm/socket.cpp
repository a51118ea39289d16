#include "api/shm/socket.hpp"

#include "api/base/named_path.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace muster::shm {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) return muster::fail(Code::kBadArgument, "the path of a socket is empty");
  if (path.size() >= sizeof address.sun_path)
    return muster::fail(Code::kBadArgument,
                        "socket path \"{}\" has {} bytes, the system allows {}; use a shorter directory",
                        path, path.size(), sizeof address.sun_path - 1);
  if (path.find('\0') != std::string::npos)
    return muster::fail(Code::kBadArgument, "a socket path contains a zero byte");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Descriptor new_socket(int flags) {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

std::string folder_of(const std::string& path) {
  const std::size_t cut = path.rfind('/');
  if (cut == std::string::npos) return ".";
  return cut == 0 ? "/" : path.substr(0, cut);
}

std::string name_in_folder(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

Status absent_error(const std::string& path) {
  const Absence absence = absence_at(path);
  const char* remedy = absence == Absence::kNothing    ? "start musterd, or use muster run"
                       : absence == Absence::kNoSocket ? "name the one of musterd"
                                                       : "start musterd";
  return failure(Code::kDaemonLost, "no daemon at {}: {}; {}", path, text_of(absence), remedy);
}

Status denied_error(const std::string& path) {
  return failure(Code::kDenied,
                 "no permission to connect: {}; join the group that owns it, or have node.group in "
                 "musterd.yaml name one of yours",
                 permissions_of(path));
}

// The folder of the socket to be made at `socket`.
Result<Descriptor> open_folder_of(const std::string& socket) {
  const std::string path = folder_of(socket);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) return folder;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR)
    return muster::fail(Code::kNotFound, "{} cannot be made: {}", socket, fault_of_place(socket));
  if (error == EACCES) return muster::fail(Code::kDenied, "permission denied: {}", permissions_of(path));
  return muster::fail(Code::kNoResource, "opening {}: {}", path, std::strerror(error));
}

// 0 if a process listens there, also with a full queue or on a socket of another kind; else errno.
int knock(const sockaddr_un& address) {
  const Descriptor probe = new_socket(SOCK_NONBLOCK);
  const bool heard = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return heard || errno == EAGAIN || errno == EPROTOTYPE ? 0 : errno;
}

Status taken_error(const std::string& path) {
  return failure(Code::kDuplicate, "a process already listens at {}; stop it or choose another path", path);
}

// Makes the path free: removes a stale socket of ours if there is one. A connection attempt tells a living
// listener, which answers or has a full queue, from the socket of a killed daemon.
Status clear_path(const Descriptor& folder, const std::string& path, const sockaddr_un& address) {
  const std::string name = name_in_folder(path);
  struct stat facts {};
  if (fstatat(folder.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return failure(Code::kDenied, "{}: {}", path, std::strerror(errno));
  }
  if (!S_ISSOCK(facts.st_mode))
    return failure(Code::kDuplicate, "{} exists and is no socket; remove it or choose another path", path);
  const int error = knock(address);
  if (error == 0) return taken_error(path);
  if (error == EBADF) return failure(Code::kNoResource, "socket: raise the open-files limit (ulimit -n)");
  if (error != ECONNREFUSED)
    return failure(Code::kDenied, "{}: {}; {}", path, std::strerror(error), permissions_of(path));
  if (facts.st_uid != geteuid())
    return failure(
        Code::kDenied,
        "a stale socket of another user is in the way: {}; have it removed, by its owner or root, or choose "
        "another path",
        permissions_of(path));
  if (unlinkat(folder.get(), name.c_str(), 0) != 0)
    return failure(Code::kDenied, "removing the stale socket {}: {}", path, std::strerror(errno));
  return {};
}

Status bind_error(const std::string& path, int error) {
  if (error == EACCES || error == EPERM || error == EROFS)
    return failure(Code::kDenied, "no permission to create {} ({}): {}", path, std::strerror(error),
                   permissions_of(folder_of(path)));
  if (error == EADDRINUSE) return failure(Code::kDuplicate, "{} was taken meanwhile; try again", path);
  return failure(Code::kNoResource, "binding {}: {}", path, std::strerror(error));
}

Status connect_error(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
      return absent_error(path);
    case EAGAIN:
      return failure(Code::kDaemonLost, "the daemon at {} took no connection in time", path);
    case EACCES:
    case EPERM:
      return denied_error(path);
    case EPROTOTYPE:
      return failure(Code::kProtocol, "{} is a socket of another kind, not of a daemon of ours", path);
    default:
      return failure(Code::kNoResource, "connecting to {}: {}", path, std::strerror(error));
  }
}

// Takes the descriptors out of the control data. It owns all of them at once, so an early return closes them.
void collect(msghdr* header, Message* message, bool* excess) {
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (!message->descriptors.push_back(Descriptor(fd))) *excess = true;
    }
  }
}

void clear(std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
}

}  // namespace

Absence absence_at(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return Absence::kNothing;
  return S_ISSOCK(facts.st_mode) ? Absence::kNobody : Absence::kNoSocket;
}

const char* text_of(Absence absence) {
  if (absence == Absence::kNothing) return "there is no such socket";
  return absence == Absence::kNoSocket ? "it is not a socket" : "nobody listens there any more";
}

std::optional<FileId> socket_of(const struct stat& facts) {
  if (!S_ISSOCK(facts.st_mode)) return std::nullopt;
  return FileId{facts.st_dev, facts.st_ino};
}

std::optional<FileId> socket_at(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0 ? socket_of(facts) : std::nullopt;
}

bool change_mode(const Descriptor& file, mode_t mode) {
  return chmod(fmt::format("/proc/self/fd/{}", file.get()).c_str(), mode) == 0;
}

Status lock_folder(const Descriptor& folder, const std::string& path, int tries) {
  for (int i = 0; i < tries; ++i) {
    if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0) return {};
    if (i + 1 == tries) break;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&pause, nullptr);
  }
  return failure(
      Code::kBusy,
      "another process holds the lock on {}: another daemon, or any process that may read the folder "
      "(lslocks shows which); end it, or chmod 0711 the folder",
      path);
}

std::string permissions_of(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0)
    return fmt::format("{} cannot be looked at by user {}", path, geteuid());
  return fmt::format("{} belongs to user {} and group {} with mode {:04o}; this is user {}", path,
                     facts.st_uid, facts.st_gid, facts.st_mode & 07777, geteuid());
}

Result<Listener> Listener::open(const std::string& path, Options options) {
  MUSTER_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  Descriptor own;
  if (options.folder == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(own, open_folder_of(path));
    const Status locked = lock_folder(own, folder_of(path), options.lock_tries);
    if (!locked.ok()) return muster::fail(knock(address) == 0 ? taken_error(path) : locked);
  }
  // All steps use this descriptor: another folder that takes this one's place meanwhile is not touched.
  const Descriptor& folder = options.folder != nullptr ? *options.folder : own;
  MUSTER_RETURN_IF_ERROR(clear_path(folder, path, address));
  Descriptor socket = new_socket(SOCK_NONBLOCK);
  if (!socket.valid()) return muster::fail(Code::kNoResource, "socket: {}", std::strerror(errno));
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return muster::fail(bind_error(path, errno));
  const std::string name = name_in_folder(path);
  const Descriptor file(openat(folder.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  // No client can connect between bind and listen, so the mode is set before the first one. It is set by the
  // file's descriptor, so that a link in the file's place is not followed.
  if (!file.valid() || fstat(file.get(), &facts) != 0 || !S_ISSOCK(facts.st_mode) ||
      !change_mode(file, options.mode) || ::listen(socket.get(), options.backlog) != 0) {
    const int error = errno;
    if (S_ISSOCK(facts.st_mode)) unlinkat(folder.get(), name.c_str(), 0);
    return muster::fail(Code::kInternal, "opening {}: {}", path, std::strerror(error));
  }
  return Listener(std::move(socket), path, socket_of(facts));
}

Listener::~Listener() {
  if (socket_.valid() && file_ && socket_at(path_) == file_) unlink(path_.c_str());
}

Result<Descriptor> Listener::accept() const {
  Descriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) return connection;
  switch (errno) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
      return muster::fail(Code::kPending, "no connection waits at {}", path_);
    case EMFILE:
    case ENFILE:
      return muster::fail(Code::kNoResource, "accepting at {}: {}; raise RLIMIT_NOFILE or fs.file-max", path_,
                          std::strerror(errno));
    default:
      return muster::fail(Code::kNoResource, "accepting at {}: {}", path_, std::strerror(errno));
  }
}

Result<Descriptor> connect_to(const std::string& path, Instant deadline, const Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  Descriptor socket = new_socket(0);
  if (!socket.valid()) return muster::fail(Code::kNoResource, "socket: {}", std::strerror(errno));
  for (;;) {
    // connect() of a Unix socket waits for room in the accept queue, at most the send timeout. 0 would be no
    // bound.
    const std::int64_t left_us = std::max<std::int64_t>((deadline - clock.now()).count() / 1000, 1);
    const timeval timeout{.tv_sec = left_us / 1000000, .tv_usec = left_us % 1000000};
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return socket;
    if (errno != EINTR || clock.now() >= deadline) return muster::fail(connect_error(path, errno));
  }
}

Status send_message(const Descriptor& socket, std::span<const std::byte> bytes,
                    std::span<const int> descriptors) {
  if (bytes.empty() || bytes.size() > kMessageBytesMax || descriptors.size() > kDescriptorsMax)
    return failure(Code::kBadArgument,
                   "a message of {} bytes and {} descriptors; 1 to {} and at most {} are possible",
                   bytes.size(), descriptors.size(), kMessageBytesMax, kDescriptorsMax);
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do sent = sendmsg(socket.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  switch (errno) {
    case EAGAIN:
    case ETOOMANYREFS:
      return failure(Code::kBusy, "the peer does not read its messages");
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      return failure(Code::kDaemonLost, "the peer has closed the socket");
    default:
      return failure(Code::kNoResource, "sending {} bytes: {}", bytes.size(), std::strerror(errno));
  }
}

Result<Message> receive_message(const Descriptor& socket, std::span<std::byte> buffer, Passing passing) {
  iovec data{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (passing == Passing::kAllowed) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  ssize_t got = 0;
  // If the peer closed with messages of ours unread, ECONNRESET comes once, before its own messages.
  bool reset = false;
  do got = recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (got < 0) {
    if (errno == EAGAIN) return muster::fail(Code::kPending, "no message yet");
    if (errno == ECONNRESET || errno == ENOTCONN) return Message{};
    const int error = errno;
    clear(buffer);
    return muster::fail(Code::kNoResource, "receiving: {}", std::strerror(error));
  }
  Message message;
  message.bytes = static_cast<std::size_t>(got);
  bool excess = false;
  collect(&header, &message, &excess);
  const bool cut = (header.msg_flags & MSG_CTRUNC) != 0;
  if (cut && passing == Passing::kNone)
    return muster::fail(Code::kProtocol, "a message carries descriptors, and here none may come");
  // Cut although there was room: this process had no free descriptor for them.
  if (cut && !excess && message.descriptors.size() < kDescriptorsMax) {
    clear(buffer.subspan(std::min(message.bytes, buffer.size())));
    return muster::fail(Code::kNoResource,
                        "the descriptors of a message could not be opened here; raise the open-files limit "
                        "(RLIMIT_NOFILE, ulimit -n)");
  }
  if (cut || excess)
    return muster::fail(Code::kProtocol, "a message carries more than {} descriptors", kDescriptorsMax);
  if ((header.msg_flags & MSG_TRUNC) != 0)
    return muster::fail(Code::kProtocol, "a message is larger than {} bytes", buffer.size());
  return message;
}

Result<Message> receive_message(const Descriptor& socket, std::span<std::byte> buffer, Instant deadline,
                                const Clock& clock) {
  for (;;) {
    Result<Message> message = receive_message(socket, buffer);
    if (message || message.error().code() != Code::kPending) return message;
    const Nanos left = deadline - clock.now();
    if (left.count() <= 0) return muster::fail(Code::kWaitTimeout, "no message came in time");
    constexpr std::int64_t kMillisecond = 1000000;
    const std::int64_t ms = std::min<std::int64_t>((left.count() - 1) / kMillisecond + 1, 60000);
    pollfd entry{.fd = socket.get(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, static_cast<int>(ms));
  }
}

}  // namespace muster::shm
