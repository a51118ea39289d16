// RuntimeDirectory: the directory that the daemon makes for its socket, and holds by a lock.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <optional>
#include <string>

#include <sys/stat.h>

namespace muster::supervisor {

// A lock (flock) on the directory itself keeps a second daemon away, also one in another network namespace,
// and systemd-tmpfiles, which cleans no directory that is locked. One that everybody may write into, as /tmp
// is, belongs to nobody: it is used, and not locked.
//
// A link in its place is followed if root or this user made it, and nobody else's. again() uses a directory
// that is there already only if it belongs to root, this user or the former one's owner, and does not change
// it.
//
// Owns    its descriptor, and so the lock. The directory stays until remove().
// Thread  a value; one at a time.
// Bound   kMakeTries of making it while others take it away.
// Fails   make, again: kDenied, kDuplicate (another file is there), kBusy (another holds its lock).
class RuntimeDirectory {
 public:
  static constexpr int kMakeTries = 8;
  // If it is not there yet, with this mode. `lock_tries`: as shm::lock_folder().
  static Result<RuntimeDirectory> make(const std::string& path, mode_t mode, int lock_tries);
  // One that a predecessor kept under that name, if it was at this path's place.
  static std::optional<RuntimeDirectory> adopt(shm::Descriptor folder, const std::string& path,
                                               const std::string& name);
  // Another one in the place of this, which is gone: of the same owner and mode. Does not wait.
  Result<RuntimeDirectory> again() const;
  // Whether the path still leads to it.
  bool stands() const;
  // If it stands and nothing is in it.
  void remove() const;

  const std::string& path() const { return path_; }
  const shm::Descriptor& descriptor() const { return folder_; }
  bool locked() const { return locked_; }
  // "folder-…", which one it is: how it is kept for a successor.
  std::string name() const;
  static constexpr const char* kNamePrefix = "folder-";

 private:
  RuntimeDirectory(std::string path, shm::Descriptor folder, const struct stat& facts)
      : path_(std::move(path)), folder_(std::move(folder)), facts_(facts) {}
  static Result<RuntimeDirectory> open(const std::string& path, mode_t mode, int lock_tries,
                                       const struct stat* former);
  Status lock(int tries);

  std::string path_;
  shm::Descriptor folder_;
  struct stat facts_;
  bool locked_ = false;
};

}  // namespace muster::supervisor
