#include "api/base/store/shelf.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/fault_point.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/saved_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

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
  if (error) return fail(trouble("list", folder, error.value()));
  std::ranges::sort(names);
  return names;
}

// Renamed first, so that nobody finds a half of it under its name.
Status remove_checkpoint(const std::string& folder, const std::string& name) {
  const std::string from = folder + "/" + name;
  const std::string aside = folder + "/" + checkpoint::staged_name(name, 0);
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(from, aside, error);
  if (error) return trouble("rename", from, error.value());
  MUSTER_FAULT_POINT("checkpoint.old_renamed");
  fs::remove_all(aside, error);
  return error ? trouble("remove", aside, error.value()) : Status();
}

bool is_abandoned(const std::string& path) {
  const auto lock = DiskFile::folder(path);
  return lock && ::flock(lock->number(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

Result<std::vector<ShelfEntry>> list_shelf(const std::string& folder, std::vector<std::string>* damaged) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, folders_in(folder));
  std::vector<ShelfEntry> entries;
  for (const std::string& name : names) {
    if (checkpoint::is_staged_name(name)) continue;
    const auto saved = SavedFolder::open(folder + "/" + name);
    if (saved)
      entries.push_back(
          {name, saved->record().step, saved->record().bytes(), saved->record().tensors.size()});
    else if (damaged != nullptr && saved.error().code() != Code::kNotFound)
      damaged->push_back(saved.error().message());
  }
  std::ranges::sort(entries, [](const ShelfEntry& a, const ShelfEntry& b) {
    return std::tie(a.step, a.name) < std::tie(b.step, b.name);
  });
  return entries;
}

Result<std::string> newest_on_shelf(const std::string& folder) {
  std::vector<std::string> damaged;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ShelfEntry> entries, list_shelf(folder, &damaged));
  if (!entries.empty()) return entries.back().name;
  if (!damaged.empty()) return fail(Code::kCorrupt, "{} has no sound checkpoint: {}", folder, damaged.back());
  return fail(Code::kNotFound, "{} has no checkpoint", folder);
}

Status prune_shelf(const std::string& folder, std::size_t keep, const std::string& newest) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ShelfEntry> entries, list_shelf(folder));
  std::size_t left = entries.size();
  for (const ShelfEntry& entry : entries) {
    if (left <= keep) break;
    if (entry.name == newest) continue;
    MUSTER_RETURN_IF_ERROR(remove_checkpoint(folder, entry.name));
    --left;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, folders_in(folder));
  std::error_code error;
  const auto made = fs::last_write_time(folder + "/" + newest, error);
  for (const std::string& name : names) {
    if (error || !checkpoint::is_staged_name(name)) continue;
    const std::string path = folder + "/" + name;
    std::error_code ignored;
    if (fs::last_write_time(path, ignored) < made && !ignored && is_abandoned(path))
      fs::remove_all(path, ignored);
  }
  return {};
}

}  // namespace muster::store
