// RuntimeDirectory: the directory that the daemon makes for its sockets, with two folders in it
// (api/shm/endpoint.hpp).
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <optional>
#include <string>

#include <sys/stat.h>

namespace muster::supervisor {

// Any user that may pass through the directory may connect. Its mode and group follow the settings if it
// belongs to this user; a directory of another user keeps them.
//
// The lock is a flock on the folder `daemon`, which only this user can open: neither a member of the group
// nor a container can hold it. It keeps a second daemon away, also one in another network namespace. The
// directory itself is locked too if it is free, because systemd-tmpfiles cleans no locked directory.
//
// A symbolic link in place of the directory is followed only if root or this user made it; one in place of a
// folder never. mend() takes an existing directory only if it belongs to root, this user or the former one's
// owner.
//
// Owns    its descriptors, and so the lock. The directory stays until remove().
// Thread  a value; one at a time.
// Bound   kMakeTries attempts to make it while other processes remove it.
// Fails   make, mend: kDenied, kDuplicate (another file is there), kBusy (another holds its lock).
class RuntimeDirectory {
 public:
  static constexpr int kMakeTries = 8;
  struct Access {
    mode_t mode = 0750;
    std::optional<gid_t> gid;  // the users' group; none: the daemon's
  };
  // Makes what is missing. `lock_tries`: as shm::lock_folder().
  static Result<RuntimeDirectory> make(const std::string& path, const Access& access, int lock_tries);
  // Takes over the lock that a predecessor kept under that name. mend() opens the rest.
  static std::optional<RuntimeDirectory> adopt(shm::Descriptor own, const std::string& path,
                                               const std::string& name);
  // Opens what stands, makes anew what is gone, with its former owner and mode, and sets `access`.
  Status mend(const Access& access, int lock_tries);
  // Whether the path still leads to this directory and its folders.
  bool stands() const;
  // Whether the path still leads to the folder with the lock.
  bool lock_stands() const { return own_.stands(); }
  // Gives the folder of the ranks' socket to this user again, with its mode. Whether somebody had changed
  // that. kDenied.
  Result<bool> restore_ranks() const;
  // Removes the directory with its folders, as far as they stand and are empty.
  void remove() const;
  // Whether this process may give the directory to the group of `access`. kDenied.
  static Status may_give(const std::string& path, const Access& access);

  const std::string& path() const { return base_.path; }
  const std::string& ranks_folder() const { return ranks_.path; }
  const shm::Descriptor& base() const { return base_.descriptor; }
  const shm::Descriptor& ranks() const { return ranks_.descriptor; }
  const shm::Descriptor& lock() const { return own_.descriptor; }
  // "folder-…": the name under which the lock is kept for a successor; it says which folder it is.
  std::string name() const;
  static constexpr const char* kNamePrefix = "folder-";

 private:
  struct Folder {
    std::string path;
    shm::Descriptor descriptor;
    std::optional<struct stat> facts;  // as it was opened; none: it never was

    bool stands() const;
    // Opens or makes it. kStale: it has just gone.
    Status open(mode_t mode, bool may_be_link);
  };
  explicit RuntimeDirectory(const std::string& path);
  Status mend_once(const Access& access, int lock_tries);
  Status give(const Access& access);

  Folder base_;
  Folder own_;
  Folder ranks_;
};

}  // namespace muster::supervisor
