#include "daemon/cli/run/stale_runs.hpp"

#include "api/shm/endpoint.hpp"
#include "api/shm/socket.hpp"
#include "daemon/supervisor/listener/directory_lock.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr std::size_t kChanceDigits = 16;

bool is_run_directory(const std::string& name) {
  const std::string prefix = kRunDirectoryPrefix;
  return name.starts_with(prefix) && name.size() == prefix.size() + kChanceDigits &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

// Invalid if it is no directory of this user's.
shm::Descriptor open_own(int above, const char* name) {
  shm::Descriptor folder(openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  if (folder.valid() && (fstat(folder.get(), &facts) != 0 || facts.st_uid != geteuid())) folder.reset();
  return folder;
}

void remove_socket(const shm::Descriptor& folder, const char* name) {
  struct stat facts {};
  if (fstatat(folder.get(), name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(facts.st_mode))
    unlinkat(folder.get(), name, 0);
}

}  // namespace

std::uint64_t chance_for_name() {
  std::uint64_t chance = 0;
  return getrandom(&chance, sizeof chance, 0) == sizeof chance ? chance : 0;
}

std::string fresh_run_directory(const std::string& parent) {
  return fmt::format("{}/{}{:016x}", parent, kRunDirectoryPrefix, chance_for_name());
}

bool remove_run_directory(const std::string& path) {
  const auto lock = supervisor::DirectoryLock::take_if_free(path);
  if (!lock) return false;
  const shm::Descriptor folder = open_own(AT_FDCWD, path.c_str());
  if (!folder.valid()) return false;
  const shm::Descriptor own = open_own(folder.get(), shm::kOwnFolder);
  const shm::Descriptor ranks = open_own(folder.get(), shm::kRanksFolder);
  // A daemon in another network namespace may hold the directory: DirectoryLock does not see it.
  if (own.valid() && !shm::lock_folder(own, path, 1).ok()) return false;
  if (ranks.valid()) remove_socket(ranks, shm::kRanksSocket);
  remove_socket(folder, shm::kControlSocket);
  for (const char* name : {shm::kRanksFolder, shm::kOwnFolder}) unlinkat(folder.get(), name, AT_REMOVEDIR);
  return rmdir(path.c_str()) == 0;
}

std::vector<std::string> run_parents() {
  // The basedir specification says to ignore a relative path.
  const std::size_t kParentMax = shm::kRuntimeDirectoryMax - fresh_run_directory("").size();
  std::vector<std::string> parents;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && std::strlen(runtime) <= kParentMax)
    parents.emplace_back(runtime);
  parents.emplace_back("/tmp");
  return parents;
}

std::vector<std::string> run_directories(const std::string& parent) {
  std::error_code end;
  std::vector<std::string> own;
  for (std::filesystem::directory_iterator it(parent, end), none; !end && it != none; it.increment(end)) {
    if (!is_run_directory(it->path().filename())) continue;
    struct stat facts {};
    if (lstat(it->path().c_str(), &facts) == 0 && facts.st_uid == geteuid()) own.push_back(it->path());
  }
  return own;
}

void remove_stale_runs(const std::string& parent) {
  int left = kStaleRunsMax;
  for (const std::string& directory : run_directories(parent))
    if (left > 0 && remove_run_directory(directory)) --left;
}

}  // namespace muster::cli
