#include "api/examples/training/output.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace training {
namespace {

namespace fs = std::filesystem;

// Why nothing can be made at the path, where its call has failed with `error`.
std::string reason(const std::string& path, int error) {
  std::error_code ignored;
  const fs::path folder = fs::path(path).parent_path();
  if (fs::is_symlink(path, ignored) && !fs::exists(path, ignored))
    return "it is a link to nothing; remove it";
  if (error == ENOTDIR) return "a part of its path is a file; name another place";
  if (error == ENOENT && !folder.empty() && !fs::exists(folder, ignored))
    return "there is no folder " + folder.string() + "; make it first, or name another place";
  return std::strerror(error);
}

}  // namespace

void check_writable(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  int file = ::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0644);
  if (file >= 0) {
    ::unlink(path.c_str());
    ::close(file);
    return;
  }
  const bool made_before = errno == EEXIST;
  struct stat facts {};
  const bool seen = made_before && ::stat(path.c_str(), &facts) == 0;
  if (seen && S_ISDIR(facts.st_mode)) throw OutputError(path, "it is a folder; name a file");
  if (seen && !S_ISREG(facts.st_mode)) throw OutputError(path, "it is not a regular file; name another");
  if (made_before) file = ::open(path.c_str(), kFlags);
  if (file >= 0) {
    ::close(file);
    return;
  }
  // Another rank made the file for the same check and removed it in between, so the file can be made.
  if (errno != ENOENT || !made_before) throw OutputError(path, reason(path, errno));
}

void check_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw OutputError(path, "it is a file; name a folder");
  fs::create_directories(path, error);
  if (error) throw OutputError(path, reason(path, error.value()));
  if (::access(path.c_str(), W_OK | X_OK) != 0) throw OutputError(path, std::strerror(errno));
}

void finish_output() {
  errno = 0;
  if (!std::cout.flush()) throw OutputError("standard output", std::strerror(errno != 0 ? errno : EIO));
}

}  // namespace training
