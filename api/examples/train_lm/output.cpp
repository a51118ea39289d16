#include "api/examples/train_lm/output.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace train_lm {

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
  if (made_before && ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    throw OutputError(path, "it is not a regular file");
  if (made_before) file = ::open(path.c_str(), kFlags);
  if (file >= 0) {
    ::close(file);
    return;
  }
  // Another rank made the file for the same check and removed it in between, so the file can be made.
  if (errno != ENOENT || !made_before) throw OutputError(path, std::strerror(errno));
}

void check_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw OutputError(path, error.message());
  if (::access(path.c_str(), W_OK | X_OK) != 0) throw OutputError(path, std::strerror(errno));
}

void finish_output() {
  errno = 0;
  if (!std::cout.flush()) throw OutputError("standard output", std::strerror(errno != 0 ? errno : EIO));
}

}  // namespace train_lm
