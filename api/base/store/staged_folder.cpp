#include "api/base/store/staged_folder.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/fault_point.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::store {
namespace {

std::string final_path(const std::string& folder, const std::string& name) {
  return folder + "/" + name;
}

bool exists(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0;
}

Status sync_folder(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const DiskFile folder, DiskFile::folder(path));
  return folder.sync();
}

}  // namespace

StagedFolder::StagedFolder(std::string folder, std::string name, std::string path, DiskFile lock,
                           Existing existing)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      path_(std::move(path)),
      lock_(std::move(lock)),
      existing_(existing) {}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      name_(std::move(other.name_)),
      path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      existing_(other.existing_) {}

StagedFolder& StagedFolder::operator=(StagedFolder&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(name_, other.name_);
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  std::swap(existing_, other.existing_);
  return *this;
}

StagedFolder::~StagedFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string StagedFolder::path_of(const std::string& folder, const std::string& name, std::uint64_t nonce) {
  return final_path(folder, checkpoint::staged_name(name, nonce));
}

Result<StagedFolder> StagedFolder::make(const std::string& folder, const std::string& name,
                                        std::uint64_t nonce, Existing existing) {
  MUSTER_RETURN_IF_ERROR(checkpoint::check_folder_name(name));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(trouble("create", folder, error.value()));
  if (existing == Existing::kRefuse && exists(final_path(folder, name)))
    return fail(Code::kDuplicate,
                "there is {} already; choose another name, or say that it is to be replaced",
                final_path(folder, name));
  const std::string path = path_of(folder, name, nonce);
  if (::mkdir(path.c_str(), 0777) != 0) return fail(trouble("create", path, errno));
  auto lock = DiskFile::folder(path);
  if (!lock) return fail(std::move(lock).error());
  // Where the file system has no locks, leftovers are not removed, and nothing else changes.
  (void)::flock(lock->number(), LOCK_EX | LOCK_NB);
  return StagedFolder(folder, name, path, *std::move(lock), existing);
}

Status StagedFolder::commit(const checkpoint::CheckpointRecord& record) {
  const std::string file = path_ + "/" + checkpoint::kRecordFile;
  MUSTER_FAULT_POINT("checkpoint.record_due");
  MUSTER_RETURN_IF_ERROR(write_text(file + ".new", checkpoint::text_of(record)));
  MUSTER_FAULT_POINT("checkpoint.record_written");
  if (::rename((file + ".new").c_str(), file.c_str()) != 0) return trouble("rename", file + ".new", errno);
  MUSTER_RETURN_IF_ERROR(lock_.sync());
  MUSTER_FAULT_POINT("checkpoint.record_named");
  MUSTER_RETURN_IF_ERROR(take_the_name());
  MUSTER_FAULT_POINT("checkpoint.named");
  MUSTER_RETURN_IF_ERROR(sync_folder(folder_));
  // The folder of the run may be as new as the checkpoint.
  const std::string above = std::filesystem::path(folder_).parent_path();
  return sync_folder(above.empty() ? "." : above);
}

// From here on the checkpoint exists. What it replaces is in the staged folder then, and goes with it.
Status StagedFolder::take_the_name() {
  const std::string target = final_path(folder_, name_);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
    path_.clear();
    return {};
  }
  const int error = errno;
  const bool taken = error == EEXIST || error == ENOTEMPTY || (error == EINVAL && exists(target));
  if (error == EINVAL && !taken && ::rename(path_.c_str(), target.c_str()) == 0) {  // as NFS has it
    path_.clear();
    return {};
  }
  if (!taken) return trouble("rename", path_, error);
  if (existing_ == Existing::kRefuse)
    return failure(Code::kDuplicate, "{} was made by somebody else meanwhile", target);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno == EINVAL || errno == ENOSYS)
    return failure(Code::kUnsupported,
                   "the file system of {} cannot exchange two folders; save under another name", target);
  return trouble("exchange", path_, errno);
}

}  // namespace muster::store
