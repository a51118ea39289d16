#include "daemon/supervisor/listener/runtime_directory.hpp"

#include "api/base/log.hpp"
#include "api/base/named_path.hpp"
#include "api/base/system_call.hpp"
#include "api/shm/endpoint.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr mode_t kOwnMode = 0700;
constexpr mode_t kRanksMode = 0755;
constexpr auto kSame = static_cast<uid_t>(-1);  // chown(2): the owner stays

bool is_trusted(uid_t uid) {
  return uid == 0 || uid == geteuid();
}

// Members of node.group may connect to the daemon, not pose as it, so a group that can write gets a warning.
void warn_of_others(const std::string& path, const struct stat& facts) {
  const bool group = (facts.st_mode & S_IWGRP) != 0 && facts.st_gid != 0;
  if (group)
    MUSTER_LOG(
        kWarning, "supervisor",
        "node.runtime_directory {} can be written by group {}, who may put another socket in the place of "
        "the daemon's: chmod go-w {}",
        path, facts.st_gid, path);
  if (geteuid() == 0 && facts.st_uid != 0)
    MUSTER_LOG(kWarning, "supervisor",
               "node.runtime_directory {} belongs to user {}, who may put another socket in the place of the "
               "daemon's: chown root {}",
               path, facts.st_uid, path);
}

Status not_made(const std::string& path, int error) {
  if (const std::string fault = fault_of_place(path); !fault.empty())
    return failure(Code::kDenied, "node.runtime_directory: {} cannot be made: {} (--directory)", path, fault);
  return failure(Code::kDenied,
                 "node.runtime_directory: {} cannot be made: {}: {}; create it, or choose another with "
                 "--directory",
                 path, std::strerror(error), shm::permissions_of(std::filesystem::path(path).parent_path()));
}

Status not_opened(const std::string& path, int error) {
  if (error == ENOTDIR || error == ELOOP)
    return failure(Code::kDuplicate, "{} is no directory; remove it, or choose another place", path);
  return failure(Code::kDenied, "node.runtime_directory: {} cannot be opened: {}; {}", path,
                 std::strerror(error), shm::permissions_of(path));
}

Status group_denied(const std::string& path, gid_t gid, int error) {
  return failure(Code::kDenied,
                 "{} cannot be given to group {} (node.group): {}; start as root or as its member", path, gid,
                 std::strerror(error));
}

Status belongs_to(const std::string& path, uid_t uid) {
  return failure(
      Code::kDenied,
      "{} belongs to user {} now, who may do with it what he likes; remove it, or give it to user {}", path,
      uid, geteuid());
}

}  // namespace

bool RuntimeDirectory::Folder::stands() const {
  struct stat now {};
  return facts && stat(path.c_str(), &now) == 0 && now.st_dev == facts->st_dev && now.st_ino == facts->st_ino;
}

Status RuntimeDirectory::Folder::open(mode_t mode, bool may_be_link) {
  const bool made = mkdir(path.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return not_made(path, errno);
  struct stat link {};
  const bool is_link = may_be_link && lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  if (is_link && !is_trusted(link.st_uid))
    return failure(Code::kDenied, "{} is a link that user {} has made, and is not followed; remove it", path,
                   link.st_uid);
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_link ? 0 : O_NOFOLLOW);
  shm::Descriptor opened(::open(path.c_str(), flags));
  if (!opened.valid() && errno != ENOENT) return not_opened(path, errno);
  struct stat found {};
  if (!opened.valid() || fstat(opened.get(), &found) != 0)
    return failure(Code::kStale, "{} has just been removed", path);
  // At the start the directory may be another user's, as an administrator has decided. Later no other user's
  // directory may take its place. The folders in it are this user's always.
  const bool known = made || !may_be_link ? found.st_uid == geteuid()
                     : !facts             ? true
                                          : is_trusted(found.st_uid) || found.st_uid == facts->st_uid;
  if (!known) return belongs_to(path, found.st_uid);
  // By descriptor, which is the directory that was just made.
  if (made && fchmod(opened.get(), facts ? facts->st_mode & 07777 : mode) != 0) return not_made(path, errno);
  if (made && facts && fchown(opened.get(), facts->st_uid, facts->st_gid) != 0)
    MUSTER_LOG(kWarning, "supervisor", "{} has not the owner that it had: {}", path, std::strerror(errno));
  if (fstat(opened.get(), &found) != 0) return failure(Code::kStale, "{} has just been removed", path);
  descriptor = std::move(opened);
  facts = found;
  return {};
}

RuntimeDirectory::RuntimeDirectory(const std::string& path)
    : base_{path, {}, {}},
      own_{path + "/" + shm::kOwnFolder, {}, {}},
      ranks_{path + "/" + shm::kRanksFolder, {}, {}} {}

Result<RuntimeDirectory> RuntimeDirectory::make(const std::string& path, const Access& access,
                                                int lock_tries) {
  RuntimeDirectory directory(path);
  MUSTER_RETURN_IF_ERROR(directory.mend(access, lock_tries));
  warn_of_others(path, *directory.base_.facts);
  return directory;
}

std::optional<RuntimeDirectory> RuntimeDirectory::adopt(shm::Descriptor own, const std::string& path,
                                                        const std::string& name) {
  struct stat facts {};
  if (fstat(own.get(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return std::nullopt;
  RuntimeDirectory directory(path);
  directory.own_.descriptor = std::move(own);
  directory.own_.facts = facts;
  if (directory.name() != name || !shm::lock_folder(directory.own_.descriptor, path, 1).ok())
    return std::nullopt;
  return directory;
}

Status RuntimeDirectory::mend(const Access& access, int lock_tries) {
  for (int i = 0; i < kMakeTries; ++i)
    if (const Status mended = mend_once(access, lock_tries); mended.code() != Code::kStale) return mended;
  if (const std::string fault = fault_of_new_folder(path()); !fault.empty())
    return failure(Code::kDenied, "node.runtime_directory: {}", fault);
  return failure(Code::kBusy, "{} is removed as often as it is made; find out who does that", path());
}

Status RuntimeDirectory::mend_once(const Access& access, int lock_tries) {
  if (!base_.stands()) MUSTER_RETURN_IF_ERROR(base_.open(access.mode, true));
  MUSTER_RETURN_IF_ERROR(give(access));
  flock(base_.descriptor.get(), LOCK_EX | LOCK_NB);  // for cleaners; another holder does no harm
  if (!own_.stands()) {
    Folder fresh{own_.path, {}, {}};
    MUSTER_RETURN_IF_ERROR(fresh.open(kOwnMode, false));
    if (fchmod(fresh.descriptor.get(), kOwnMode) != 0) return not_made(fresh.path, errno);
    MUSTER_RETURN_IF_ERROR(shm::lock_folder(fresh.descriptor, path(), lock_tries));
    own_ = std::move(fresh);
  }
  if (!ranks_.stands()) {
    Folder fresh{ranks_.path, {}, {}};
    MUSTER_RETURN_IF_ERROR(fresh.open(kRanksMode, false));
    if (fchmod(fresh.descriptor.get(), kRanksMode) != 0) return not_made(fresh.path, errno);
    ranks_ = std::move(fresh);
  }
  // Else the former holder of the lock has removed them.
  return stands() ? Status() : failure(Code::kStale, "{} has just been removed", path());
}

Status RuntimeDirectory::give(const Access& access) {
  struct stat& facts = *base_.facts;
  if ((facts.st_mode & (S_ISVTX | S_IWOTH)) != 0 && (facts.st_uid != geteuid() || (facts.st_mode & S_ISVTX)))
    return failure(Code::kDenied,
                   "node.runtime_directory {} is everybody's (mode {:04o}); name one of the daemon's own in "
                   "it, with --directory",
                   path(), facts.st_mode & 07777u);
  if (facts.st_uid != geteuid()) return {};
  const gid_t gid = access.gid.value_or(getegid());
  if (gid != facts.st_gid && fchown(base_.descriptor.get(), kSame, gid) != 0)
    return group_denied(path(), gid, errno);
  if ((facts.st_mode & 07777u) != access.mode && fchmod(base_.descriptor.get(), access.mode) != 0)
    return failure(Code::kDenied, "{} cannot be given mode {:04o} (node.directory_mode): {}", path(),
                   access.mode, std::strerror(errno));
  fstat(base_.descriptor.get(), &facts);
  return {};
}

// Tries it on a memory file instead of the directory: the kernel asks for the same right.
Status RuntimeDirectory::may_give(const std::string& path, const Access& access) {
  if (!access.gid) return {};
  const shm::Descriptor file = shm::open_memory_file("muster-group");
  if (!file.valid())
    return failure(Code::kNoResource, "{}", refused_call("memfd_create", errno, kRaiseOpenFiles));
  return fchown(file.get(), kSame, *access.gid) == 0 ? Status() : group_denied(path, *access.gid, errno);
}

bool RuntimeDirectory::stands() const {
  return base_.stands() && own_.stands() && ranks_.stands();
}

Result<bool> RuntimeDirectory::restore_ranks() const {
  struct stat now {};
  const int folder = ranks_.descriptor.get();
  if (!ranks_.facts || fstat(folder, &now) != 0) return false;
  const bool is_given = now.st_uid != geteuid();
  if (!is_given && (now.st_mode & 07777) == kRanksMode) return false;
  if ((!is_given || fchown(folder, geteuid(), kSame) == 0) && fchmod(folder, kRanksMode) == 0) return true;
  return fail(Code::kDenied, "{} belongs to user {} now, with mode {:04o}, and cannot be taken back: {}",
              ranks_.path, now.st_uid, now.st_mode & 07777, std::strerror(errno));
}

void RuntimeDirectory::remove() const {
  for (const Folder* folder : {&ranks_, &own_, &base_})
    if (folder->stands()) rmdir(folder->path.c_str());
}

std::string RuntimeDirectory::name() const {
  return fmt::format("{}{:x}-{:x}", kNamePrefix, own_.facts->st_dev, own_.facts->st_ino);
}

}  // namespace muster::supervisor
