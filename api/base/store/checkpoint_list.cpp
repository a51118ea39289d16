#include "api/base/store/checkpoint_list.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/named_path.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/saved_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::store {
namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator each(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    std::error_code ignored;
    if (each->is_directory(ignored) && !each->is_symlink(ignored))
      names.push_back(each->path().filename().string());
  }
  if (error == std::errc::not_a_directory)
    return fail(Code::kNoResource, "{}", fault_of_folder(folder, checkpoint::kFolderText));
  if (error) return fail(trouble("list", folder, error.value()));
  std::ranges::sort(names);
  return names;
}

// Renamed first, so that nobody finds a half of it under its name.
Status remove_checkpoint(const std::string& folder, const std::string& name, const Pause& pause) {
  const std::string from = folder + "/" + name;
  const std::string aside = folder + "/" + checkpoint::staged_name(name, 0);
  std::error_code error;
  if (fs::exists(aside, error)) MUSTER_RETURN_IF_ERROR(remove_folder(aside, pause));
  fs::rename(from, aside, error);
  if (error) return trouble("rename", from, error.value());
  MUSTER_FAULT_POINT("checkpoint.old_renamed");
  return remove_folder(aside, pause);
}

bool is_abandoned(const std::string& path) {
  const auto lock = DiskFile::folder(path);
  return lock && ::flock(lock->number(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

CheckpointEntry entry_of(std::string name, const checkpoint::CheckpointRecord& record) {
  CheckpointEntry entry{std::move(name), record.step, record.bytes(), 0, record.tensors.size()};
  if (const checkpoint::SavedTensor* user = record.find(""); user != nullptr) {
    entry.user_bytes = static_cast<std::uint64_t>(user->shape[0]);
    --entry.tensors;
  }
  return entry;
}

Result<std::vector<CheckpointEntry>> list_checkpoints(const std::string& folder, std::vector<Status>* refused,
                                                      const Pause& pause) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, folders_in(folder));
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    if (checkpoint::is_staged_name(name)) continue;
    MUSTER_RETURN_IF_ERROR(ask(pause));
    const auto saved = SavedFolder::open(folder + "/" + name);
    if (saved)
      entries.push_back(entry_of(name, saved->record()));
    else if (refused != nullptr && saved.error().code() != Code::kNotFound)
      refused->push_back(saved.error());
  }
  std::ranges::sort(entries, [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tie(a.step, a.name) < std::tie(b.step, b.name);
  });
  return entries;
}

Result<Newest> newest_checkpoint(const std::string& folder, const Pause& pause) {
  Newest newest;
  MUSTER_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries,
                          list_checkpoints(folder, &newest.damaged, pause));
  for (const Status& refused : newest.damaged)
    if (refused.code() != Code::kCorrupt) return fail(refused);
  if (entries.empty() && newest.damaged.empty()) return fail(Code::kNotFound, "{} has no checkpoint", folder);
  if (entries.empty())
    return fail(Code::kCorrupt, "{} has no sound checkpoint: {}", folder, newest.damaged.back().message());
  newest.entry = std::move(entries.back());
  return newest;
}

Status remove_oldest(const std::string& folder, std::size_t keep, const std::string& newest,
                     const Pause& pause) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries,
                          list_checkpoints(folder, nullptr, pause));
  std::size_t left = entries.size();
  for (const CheckpointEntry& entry : entries) {
    if (left <= keep) break;
    if (entry.name == newest) continue;
    MUSTER_RETURN_IF_ERROR(remove_checkpoint(folder, entry.name, pause));
    --left;
  }
  return {};
}

Status remove_leftovers(const std::string& folder, const std::string& newest, const Pause& pause) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, folders_in(folder));
  std::error_code error;
  const auto made = fs::last_write_time(folder + "/" + newest, error);
  if (error) return trouble("read", folder + "/" + newest, error.value());
  for (const std::string& name : names) {
    if (!checkpoint::is_staged_name(name)) continue;
    MUSTER_RETURN_IF_ERROR(ask(pause));
    const std::string path = folder + "/" + name;
    if (fs::last_write_time(path, error) < made && !error && is_abandoned(path))
      (void)remove_folder(path, pause);  // what cannot be removed stays
  }
  return {};
}

}  // namespace muster::store
