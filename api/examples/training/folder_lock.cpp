#include "api/examples/training/folder_lock.hpp"

#include "api/examples/training/errors.hpp"
#include "api/examples/training/output.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace training {
namespace {

constexpr int kNaps = 300;
constexpr std::chrono::milliseconds kNap(10);

bool lock(int file) {
  for (int naps = 0; ::flock(file, LOCK_EX | LOCK_NB) != 0; ++naps) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || naps == kNaps) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

std::string own_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return std::to_string(::getpid()) + " on " + host;
}

// The process that holds the lock, as it has written itself: "1234 on a-host".
std::string holder(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line.empty() ? "another process" : "process " + line;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& program) {
  const std::string path = folder + "/." + program + ".lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) throw OutputError(path, std::strerror(errno));
  int error = lock(file_) ? 0 : errno;
  const std::string name = own_name() + "\n";
  if (error == 0 && (::ftruncate(file_, 0) != 0 || ::pwrite(file_, name.data(), name.size(), 0) < 0))
    error = errno;
  if (error == 0) return;
  ::close(file_);
  if (error == EWOULDBLOCK)
    throw UsageError(holder(path) + " saves into " + folder +
                     "; wait until it ends, or choose another folder for --save");
  throw OutputError(path, std::strerror(error));
}

FolderLock::~FolderLock() {
  ::close(file_);
}

}  // namespace training
