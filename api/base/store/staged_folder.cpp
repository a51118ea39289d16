#include "api/base/store/staged_folder.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/named_path.hpp"

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

// Makes the folder, and waits until it is on the disk with all above it that is new. A folder above it that
// this user may not list is left to the file system.
Status make_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path made(folder);
  fs::path above = made;
  while (!above.empty() && !exists(above)) above = above.parent_path();
  if (const std::string fault = fault_of_new_folder(folder); !fault.empty())
    return failure(Code::kNoResource, "{}", fault);
  std::error_code error;
  fs::create_directories(made, error);
  if (error) return trouble("create", folder, error.value());
  for (fs::path each = made; each != above;) {
    each = each.parent_path();
    const auto opened = DiskFile::folder(each.empty() ? "." : each.string());
    if (!opened && opened.error().code() != Code::kDenied) return opened.error();
    if (opened) MUSTER_RETURN_IF_ERROR(opened->sync());
  }
  return {};
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
  (void)clear();
}

std::string StagedFolder::path_of(const std::string& folder, const std::string& name, std::uint64_t nonce) {
  return final_path(folder, checkpoint::staged_name(name, nonce));
}

Result<StagedFolder> StagedFolder::make(const std::string& folder, const std::string& name,
                                        std::uint64_t nonce, Existing existing) {
  MUSTER_RETURN_IF_ERROR(checkpoint::check_folder_name(name));
  MUSTER_RETURN_IF_ERROR(make_folder(folder));
  if (existing == Existing::kRefuse && exists(final_path(folder, name)))
    return fail(Code::kDuplicate, "there is {} already", final_path(folder, name));
  const std::string path = path_of(folder, name, nonce);
  if (::mkdir(path.c_str(), 0777) != 0) return fail(trouble("create", path, errno));
  auto lock = DiskFile::folder(path);
  if (!lock) return fail(std::move(lock).error());
  // Where the file system has no locks, leftovers are not removed, and nothing else changes.
  (void)::flock(lock->number(), LOCK_EX | LOCK_NB);
  return StagedFolder(folder, name, path, *std::move(lock), existing);
}

Status StagedFolder::commit(const checkpoint::CheckpointRecord& record, const Pause& pause) {
  const std::string file = path_ + "/" + checkpoint::kRecordFile;
  const std::string text = checkpoint::text_of(record);
  if (text.size() > checkpoint::kRecordBytesMax)
    return failure(Code::kBadArgument, "the metadata of {} have {} bytes; at most {} are possible",
                   final_path(folder_, name_), text.size(), checkpoint::kRecordBytesMax);
  MUSTER_RETURN_IF_ERROR(ask(pause));
  MUSTER_FAULT_POINT("checkpoint.record_due");
  MUSTER_RETURN_IF_ERROR(write_text(file + ".new", text));
  MUSTER_FAULT_POINT("checkpoint.record_written");
  if (::rename((file + ".new").c_str(), file.c_str()) != 0) return trouble("rename", file + ".new", errno);
  MUSTER_RETURN_IF_ERROR(lock_.sync());
  MUSTER_FAULT_POINT("checkpoint.record_named");
  MUSTER_ASSIGN_OR_RETURN(const DiskFile folder, DiskFile::folder(folder_));
  MUSTER_RETURN_IF_ERROR(ask(pause));
  MUSTER_RETURN_IF_ERROR(take_the_name());
  MUSTER_FAULT_POINT("checkpoint.named");
  const Status synced = folder.sync();
  return synced.ok() ? synced : give_the_name_back(folder, synced);
}

Status StagedFolder::give_the_name_back(const DiskFile& folder, const Status& why) {
  const std::string target = final_path(folder_, name_);
  if (path_.empty())
    return failure(why.code(), "{} is complete, but perhaps not on the disk: {}", target, why.message());
  const bool back = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
  if (back && folder.sync().ok())
    return failure(why.code(), "{} was not replaced, and is the former one: {}", target, why.message());
  // After a crash either may have either name.
  return failure(why.code(),
                 "{} was not replaced for certain, so {} stays too; copy both before the next save: {}",
                 target, std::exchange(path_, {}), why.message());
}

Status StagedFolder::clear(const Pause& pause) {
  if (path_.empty()) return {};
  MUSTER_RETURN_IF_ERROR(remove_folder(path_, pause));
  path_.clear();
  return {};
}

// From here on the checkpoint exists. The one that it replaces is then in the staged folder, and goes with
// it.
Status StagedFolder::take_the_name() {
  const std::string target = final_path(folder_, name_);
  Status status = rename_to_new(path_, target);
  if (status.ok()) path_.clear();
  if (status.code() != Code::kDuplicate) return status;
  if (existing_ == Existing::kRefuse)
    return failure(Code::kDuplicate, "{} was made by somebody else meanwhile", target);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno == EINVAL || errno == ENOSYS)
    return failure(Code::kUnsupported,
                   "the file system of {} cannot exchange two folders; save under another name", target);
  return trouble("exchange", path_, errno);
}

}  // namespace muster::store
