#include "api/base/store/disk_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::store {

Status trouble(const char* what, const std::string& path, int error) {
  const Code code = error == ENOENT                     ? Code::kNotFound
                    : error == EACCES || error == EPERM ? Code::kDenied
                                                        : Code::kNoResource;
  return failure(code, "cannot {} {}: {}", what, path, std::strerror(error));
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(number_, other.number_);
  return *this;
}

DiskFile::~DiskFile() {
  if (number_ >= 0) ::close(number_);
}

Result<DiskFile> DiskFile::open(const std::string& path, int flags, const std::string& known_as) {
  const int number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  const std::string& shown = known_as.empty() ? path : known_as;
  if (number < 0) return fail(trouble((flags & O_CREAT) != 0 ? "create" : "open", shown, errno));
  return DiskFile(shown, number);
}

Result<DiskFile> DiskFile::read(const std::string& path, LastLink link) {
  const int follow = link == LastLink::kFollow ? 0 : O_NOFOLLOW;
  MUSTER_ASSIGN_OR_RETURN(DiskFile file, open(path, O_RDONLY | O_NONBLOCK | follow));
  struct stat facts {};
  if (::fstat(file.number_, &facts) != 0) return fail(trouble("read", path, errno));
  if (S_ISDIR(facts.st_mode)) return fail(Code::kNotFound, "{} is a folder; name a file", path);
  if (!S_ISREG(facts.st_mode))
    return fail(Code::kNotFound, "{} is not a regular file; copy it into one", path);
  return file;
}

Result<DiskFile> DiskFile::create(const std::string& path, const std::string& known_as) {
  return open(path, O_WRONLY | O_CREAT | O_EXCL, known_as);
}

Result<DiskFile> DiskFile::folder(const std::string& path) {
  return open(path, O_RDONLY | O_DIRECTORY);
}

Result<std::uint64_t> DiskFile::bytes() const {
  struct stat facts {};
  if (::fstat(number_, &facts) != 0) return fail(trouble("read", path_, errno));
  return static_cast<std::uint64_t>(facts.st_size);
}

Status DiskFile::read_at(std::uint64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(number_, into.data(), into.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return trouble("read", path_, errno);
    if (got == 0) return failure(Code::kCorrupt, "{} ends at byte {}, where more should be", path_, at);
    at += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status DiskFile::write(std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = ::write(number_, from.data(), from.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return trouble("write", path_, errno);
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Status DiskFile::sync() const {
  if (::fsync(number_) != 0) return trouble("sync", path_, errno);
  return {};
}

Status DiskFile::close() {
  const int number = std::exchange(number_, -1);
  if (number >= 0 && ::close(number) != 0) return trouble("close", path_, errno);
  return {};
}

Result<std::string> read_text(const std::string& path, std::uint64_t most, DiskFile::LastLink link) {
  MUSTER_ASSIGN_OR_RETURN(const DiskFile file, DiskFile::read(path, link));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t bytes, file.bytes());
  if (bytes > most)
    return fail(Code::kCorrupt, "{} has {} bytes; at most {} are possible", path, bytes, most);
  std::string text(bytes, '\0');
  MUSTER_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

Status write_text(const std::string& path, std::string_view text) {
  MUSTER_ASSIGN_OR_RETURN(DiskFile file, DiskFile::create(path));
  MUSTER_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text.data(), text.size()))));
  MUSTER_RETURN_IF_ERROR(file.sync());
  return file.close();
}

Status rename_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  int error = errno;
  if (error == EINVAL || error == ENOSYS) {
    // NFS refuses the flag. A second link is as good for a file. A folder takes the place of an empty one
    // only.
    if (::link(from.c_str(), to.c_str()) == 0)
      return ::unlink(from.c_str()) == 0 ? Status() : trouble("remove", from, errno);
    struct stat facts {};
    const bool taken = errno == EEXIST || ::lstat(to.c_str(), &facts) == 0;
    if (!taken && ::rename(from.c_str(), to.c_str()) == 0) return {};
    error = taken ? EEXIST : errno;
  }
  if (error == EEXIST || error == ENOTEMPTY) return failure(Code::kDuplicate, "there is {} already", to);
  return trouble("rename", from, error);
}

Status remove_folder(const std::string& path, const Pause& pause) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator each(path, error); !error && each != fs::directory_iterator();
       each.increment(error))
    entries.push_back(each->path());
  for (const fs::path& entry : entries) {
    MUSTER_RETURN_IF_ERROR(ask(pause));
    if (!error) fs::remove_all(entry, error);
  }
  if (!error) fs::remove(path, error);
  return error ? trouble("remove", path, error.value()) : Status();
}

std::uint64_t fresh_nonce() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto nanoseconds =
      static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
  return (static_cast<std::uint64_t>(getpid()) << 40U) ^ nanoseconds;
}

}  // namespace muster::store
