#include "daemon/supervisor/runtime_directory.hpp"

#include "api/base/log.hpp"
#include "api/shm/socket.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

bool is_trusted(uid_t uid) {
  return uid == 0 || uid == geteuid();
}

bool leads_to(const std::string& path, const struct stat& facts) {
  struct stat now {};
  return stat(path.c_str(), &now) == 0 && now.st_dev == facts.st_dev && now.st_ino == facts.st_ino;
}

// Everybody may write into a directory like /tmp, but nobody can remove another's file there. Members of
// node.group may connect to the daemon, not pose as it, so a group that can write gets a warning too.
void warn_of_writers(const std::string& path, const struct stat& facts) {
  if ((facts.st_mode & S_ISVTX) != 0) return;
  const bool anybody = (facts.st_mode & S_IWOTH) != 0;
  const bool group = (facts.st_mode & S_IWGRP) != 0 && facts.st_gid != 0;
  if (anybody || group)
    MUSTER_LOG(
        kWarning, "supervisor",
        "node.runtime_directory {} can be written by {}, who may put another socket in the place of the "
        "daemon's: chmod go-w {}",
        path, anybody ? "everybody" : fmt::format("group {}", facts.st_gid), path);
}

Status not_made(const std::string& path, int error) {
  return failure(Code::kDenied,
                 "node.runtime_directory {} cannot be made: {}; create it, or choose another with --set "
                 "node.runtime_directory=… and --socket …",
                 path, std::strerror(error));
}

Status not_opened(const std::string& path, int error) {
  if (error == ENOTDIR || error == ELOOP)
    return failure(Code::kDuplicate, "{} is no directory; remove it, or choose another place", path);
  return failure(Code::kDenied, "node.runtime_directory {} cannot be opened: {}; {}", path,
                 std::strerror(error), shm::permissions_of(path));
}

// Opens a directory if the path to it can be trusted. Invalid: it has just gone.
Result<shm::Descriptor> open_trusted(const std::string& path) {
  struct stat link {};
  const bool is_link = lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  if (is_link && !is_trusted(link.st_uid))
    return fail(Code::kDenied, "{} is a link that user {} has made, and is not followed; remove it", path,
                link.st_uid);
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_link ? 0 : O_NOFOLLOW);
  shm::Descriptor folder(::open(path.c_str(), flags));
  if (!folder.valid() && errno != ENOENT) return fail(not_opened(path, errno));
  return folder;
}

}  // namespace

Result<RuntimeDirectory> RuntimeDirectory::open(const std::string& path, mode_t mode, int lock_tries,
                                                const struct stat* former) {
  for (int i = 0; i < kMakeTries; ++i) {
    const bool made = mkdir(path.c_str(), mode) == 0;
    if (!made && errno != EEXIST) return fail(not_made(path, errno));
    MUSTER_ASSIGN_OR_RETURN(shm::Descriptor folder, open_trusted(path));
    struct stat facts {};
    if (!folder.valid() || fstat(folder.get(), &facts) != 0) continue;
    const bool known = made                ? facts.st_uid == geteuid()
                       : former == nullptr ? true
                                           : is_trusted(facts.st_uid) || facts.st_uid == former->st_uid;
    if (!known)
      return fail(Code::kDenied,
                  "{} belongs to user {} now, who may do with it what he likes; remove it, or give it to "
                  "user {}",
                  path, facts.st_uid, geteuid());
    // By descriptor, which is the directory that was just made.
    if (made && former != nullptr &&
        (fchown(folder.get(), former->st_uid, former->st_gid) != 0 ||
         fchmod(folder.get(), former->st_mode & 07777) != 0))
      MUSTER_LOG(kWarning, "supervisor", "{} has not the owner and mode that it had: {}", path,
                 std::strerror(errno));
    if (fstat(folder.get(), &facts) != 0) continue;
    RuntimeDirectory directory(path, std::move(folder), facts);
    MUSTER_RETURN_IF_ERROR(directory.lock(lock_tries));
    if (directory.stands()) return directory;  // else the lock's former holder has removed it
  }
  return fail(Code::kBusy, "{} is removed as often as it is made; find out who does that", path);
}

Result<RuntimeDirectory> RuntimeDirectory::make(const std::string& path, mode_t mode, int lock_tries) {
  MUSTER_ASSIGN_OR_RETURN(RuntimeDirectory directory, open(path, mode, lock_tries, nullptr));
  warn_of_writers(path, directory.facts_);
  if (geteuid() == 0 && directory.facts_.st_uid != 0)
    MUSTER_LOG(kWarning, "supervisor",
               "node.runtime_directory {} belongs to user {}, who may put another socket in the place of the "
               "daemon's: chown root {}",
               path, directory.facts_.st_uid, path);
  return directory;
}

std::optional<RuntimeDirectory> RuntimeDirectory::adopt(shm::Descriptor folder, const std::string& path,
                                                        const std::string& name) {
  struct stat facts {};
  if (fstat(folder.get(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return std::nullopt;
  RuntimeDirectory directory(path, std::move(folder), facts);
  if (directory.name() != name || !directory.lock(1).ok()) return std::nullopt;
  return directory;
}

Result<RuntimeDirectory> RuntimeDirectory::again() const {
  return open(path_, facts_.st_mode & 0777, 1, &facts_);
}

Status RuntimeDirectory::lock(int tries) {
  if ((facts_.st_mode & S_IWOTH) != 0) return {};
  MUSTER_RETURN_IF_ERROR(shm::lock_folder(folder_, path_, tries));
  locked_ = true;
  return {};
}

bool RuntimeDirectory::stands() const {
  return leads_to(path_, facts_);
}

void RuntimeDirectory::remove() const {
  if (stands()) rmdir(path_.c_str());
}

std::string RuntimeDirectory::name() const {
  return fmt::format("{}{:x}-{:x}", kNamePrefix, facts_.st_dev, facts_.st_ino);
}

}  // namespace muster::supervisor
