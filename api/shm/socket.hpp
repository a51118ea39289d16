// The handshake's transport: a Unix socket of datagrams in order (SOCK_SEQPACKET) that also carries
// descriptors.
//
// A socket has a path, never an abstract name, because a path has permissions. No call here blocks without a
// deadline, and no send blocks at all: a peer that stops reading harms itself alone.
#pragma once

#include "api/base/bounded.hpp"
#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/control.hpp"
#include "api/shm/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <sys/stat.h>

namespace muster::shm {

// Identifies a file. Its path may lead to another file later.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
// The id of a socket's file; none for any other file.
std::optional<FileId> socket_of(const struct stat& facts);
// The socket's file at that path; none if there is another file or a link.
std::optional<FileId> socket_at(const std::string& path);
// Changes the mode of a file opened with O_PATH, which fchmod(2) refuses. False: errno says why.
bool change_mode(const Descriptor& file, mode_t mode);

// A socket that takes connections at a path.
//
// Owns    its descriptor, and its file, which the end removes unless the path leads to another one.
// Thread  a value; one at a time.
// Bound   the kernel's accept queue.
// Fails   open: BAD_ARGUMENT (path too long), DUPLICATE (another process listens there, or another file is at
//         the path), DENIED, NOT_FOUND (no such directory), BUSY (another process opens a socket in this
//         directory), NO_RESOURCE.
class Listener {
 public:
  static constexpr int kLockTries = 200;
  struct Options {
    mode_t mode = 0660;
    int backlog = 128;
    const Descriptor* folder =
        nullptr;  // the path's folder, if the caller holds its lock; null: open() takes the lock
    int lock_tries = kLockTries;
  };

  static Result<Listener> open(const std::string& path, Options options);
  // Takes over a socket that listens already. Without `file` the end removes no file.
  Listener(Descriptor socket, std::string path, std::optional<FileId> file)
      : socket_(std::move(socket)), path_(std::move(path)), file_(file) {}
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  // The next connection. kPending if none waits; kNoResource if this process or system is out of descriptors.
  Result<Descriptor> accept() const;

  const Descriptor& descriptor() const { return socket_; }
  const std::string& path() const { return path_; }
  const std::optional<FileId>& file() const { return file_; }

 private:
  Descriptor socket_;
  std::string path_;
  std::optional<FileId> file_;
};

// Locks the directory `folder`, which `path` names, until its descriptor is closed. Look, removal and bind of
// a socket happen under this lock: otherwise two daemons that start together could take each other's fresh
// socket for a stale one. The lock leaves no file. Tries `tries` times, a millisecond apart. Errors: BUSY.
Status lock_folder(const Descriptor& folder, const std::string& path, int tries);

// "/run belongs to user 0 and group 0 with mode 0755; this is user 1000": explains a refusal.
std::string permissions_of(const std::string& path);

// Why no program answers at a path, as the file system shows it now.
enum class Absence : std::uint8_t { kNothing, kNoSocket, kNobody };
Absence absence_at(const std::string& path);
const char* text_of(Absence absence);  // "there is no such socket"

// Connects a client. Errors: BAD_ARGUMENT (path), DAEMON_LOST (no listener, or too busy until the deadline),
// DENIED, PROTOCOL (a socket of another kind), NO_RESOURCE.
Result<Descriptor> connect_to(const std::string& path, Instant deadline, const Clock& clock);

// One datagram with at most kDescriptorsMax descriptors, which stay the caller's. Does not block. Errors:
// BUSY (the peer does not read), DAEMON_LOST (the peer has closed), BAD_ARGUMENT (too large), NO_RESOURCE.
Status send_message(const Descriptor& socket, std::span<const std::byte> bytes,
                    std::span<const int> descriptors = {});

struct Message {
  std::size_t bytes = 0;  // 0: the peer has closed
  BoundedVector<Descriptor, kDescriptorsMax> descriptors;
};

// Whether descriptors may come with a message. Accept none from an unknown peer: to read or even close one
// may take as long as its sender likes (a file system in user space). With kNone they are never opened here.
enum class Passing { kAllowed, kNone };

// Room for a message of any size. Its bytes are undefined until one is received: to clear them would take
// longer than most messages.
struct MessageBuffer {
  std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(kMessageBytesMax);
  std::span<std::byte> all() const { return {bytes.get(), kMessageBytesMax}; }
};

// One datagram into `buffer`. Does not block: kPending if none is there. Errors: PROTOCOL (larger than the
// buffer, or with more descriptors than allowed: all of them are closed), NO_RESOURCE (this process has no
// free descriptor: those that came are lost, the bytes are in `buffer` with zeros behind them, and the socket
// still works).
Result<Message> receive_message(const Descriptor& socket, std::span<std::byte> buffer,
                                Passing passing = Passing::kAllowed);

// As above, but waits until `deadline`: then kWaitTimeout.
Result<Message> receive_message(const Descriptor& socket, std::span<std::byte> buffer, Instant deadline,
                                const Clock& clock);

}  // namespace muster::shm
