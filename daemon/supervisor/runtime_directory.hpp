// RuntimeDirectory: the directory that the daemon makes for its socket, and locks.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <optional>
#include <string>
#include <utility>

#include <sys/stat.h>

namespace muster::supervisor {

// The lock (flock on the directory) keeps a second daemon away, also one in another network namespace. It
// keeps systemd-tmpfiles away too, which cleans no locked directory. A directory that everybody may write
// into, such as /tmp, is used but not locked.
//
// A symbolic link in its place is followed only if root or this user made it. again() uses an existing
// directory only if it belongs to root, this user or the former one's owner, and does not change it.
//
// Owns    its descriptor, and so the lock. The directory stays until remove().
// Thread  a value; one at a time.
// Bound   kMakeTries attempts to make it while other processes remove it.
// Fails   make, again: kDenied, kDuplicate (another file is there), kBusy (another holds its lock).
class RuntimeDirectory {
 public:
  static constexpr int kMakeTries = 8;
  // Makes the directory with this mode, unless it exists. `lock_tries`: as shm::lock_folder().
  static Result<RuntimeDirectory> make(const std::string& path, mode_t mode, int lock_tries);
  // Takes over a directory that a predecessor kept under that name, if it was made for this path.
  static std::optional<RuntimeDirectory> adopt(shm::Descriptor folder, const std::string& path,
                                               const std::string& name);
  // Makes a new directory in place of this one, which is gone, with its owner and mode. Does not wait.
  Result<RuntimeDirectory> again() const;
  // Whether the path still leads to this directory.
  bool stands() const;
  // Removes the directory, if it stands and is empty.
  void remove() const;

  const std::string& path() const { return path_; }
  const shm::Descriptor& descriptor() const { return folder_; }
  bool locked() const { return locked_; }
  // "folder-…": the name under which it is kept for a successor; it says which directory it is.
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
