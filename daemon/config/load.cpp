#include "daemon/config/load.hpp"

#include "api/shm/descriptor.hpp"
#include "daemon/config/document.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::config {
namespace {

Status refused_open(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR)
    return failure(Code::kNotFound, "{}: error: no such file; check the path", path);
  if (error == EACCES || error == EPERM)
    return failure(Code::kDenied, "{}: error: this user may not read it; check its owner and mode", path);
  return failure(Code::kConfig, "{}: error: cannot be opened: {}", path, std::strerror(error));
}

Status check_owner(const std::string& path, const struct stat& facts, uid_t caller) {
  if (facts.st_uid != 0 && facts.st_uid != caller) {
    return failure(
        Code::kDenied,
        "{}: error: owned by user {}, who could change what the daemon does; chown it to root or to user {}",
        path, facts.st_uid, caller);
  }
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    const char* who = (facts.st_mode & S_IWOTH) != 0 ? "everyone" : "its group";
    return failure(Code::kDenied, "{}: error: mode {:04o} lets {} write it; run: chmod go-w {}", path,
                   facts.st_mode & 07777u, who, path);
  }
  return {};
}

Result<std::string> read_all(const std::string& path, int descriptor) {
  std::string text(kTextBytesMax + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(descriptor, text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(Code::kConfig, "{}: error: cannot be read: {}", path, std::strerror(errno));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kTextBytesMax)
    return fail(Code::kConfig, "{}: error: larger than {} bytes; this is no configuration file", path,
                kTextBytesMax);
  text.resize(length);
  return text;
}

}  // namespace

Result<Source> load_file(const std::string& path, Ownership ownership, uid_t caller) {
  // O_NONBLOCK: otherwise opening a pipe waits for a writer.
  const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return fail(refused_open(path, errno));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0)
    return fail(Code::kConfig, "{}: error: cannot be examined: {}", path, std::strerror(errno));
  if (S_ISDIR(facts.st_mode))
    return fail(Code::kConfig, "{}: error: is a directory; name a file in it", path);
  if (!S_ISREG(facts.st_mode)) return fail(Code::kConfig, "{}: error: is not a regular file; name one", path);
  if (ownership == Ownership::kTrusted) MUSTER_RETURN_IF_ERROR(check_owner(path, facts, caller));
  MUSTER_ASSIGN_OR_RETURN(std::string text, read_all(path, file.get()));
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return fail(Code::kConfig, "{}: error: the file is empty; was it cut off? remove it to use the defaults",
                path);
  return Source(path, std::move(text));
}

}  // namespace muster::config
