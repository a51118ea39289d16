#include "daemon/cli/ask/trace_file.hpp"

#include "api/base/named_path.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr std::size_t kTraceBytesMax = std::size_t{4} << 30;

Trouble cannot_write(const std::string& path, int error) {
  return {kFailed, fmt::format("cannot write {}: {}", path, std::strerror(error))};
}

// Whether a rename onto the path replaces a regular file or nothing, not a device or a link.
bool replaceable(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode);
}

// Returns 0 or an errno.
int write_all(const std::string& path, const std::string& text) {
  shm::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return errno;
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(file.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    written += static_cast<std::size_t>(n);
  }
  return 0;
}

// Makes and removes the file, or opens the one that is there. Returns 0 or an errno.
int try_to_write(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  shm::Descriptor file(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0644));
  if (file.valid()) {
    ::unlink(path.c_str());
    return 0;
  }
  if (errno == EEXIST) file.reset(::open(path.c_str(), kFlags));
  return file.valid() ? 0 : errno;
}

}  // namespace

std::optional<Trouble> check_writable(const char* option, const std::string& path) {
  if (const std::string fault = fault_of_new_file(path); !fault.empty())
    return Trouble{kFailed, fmt::format("{}: {}", option, fault)};
  const int error = try_to_write(path);
  return error == 0 ? std::nullopt : std::optional(cannot_write(path, error));
}

std::optional<Trouble> write_whole(const std::string& text, const std::string& path) {
  const std::string partial = path + ".partial";
  const bool beside = replaceable(path) && try_to_write(partial) == 0;
  const std::string& target = beside ? partial : path;
  int error = write_all(target, text);
  if (error == 0 && beside && ::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return std::nullopt;
  if (beside) ::unlink(partial.c_str());
  return cannot_write(path, error);
}

OrTrouble<std::uint64_t> write_trace(const DaemonAnswer& answer, const std::string& path) {
  if (answer.descriptors.size() != 1) return tl::unexpected(Trouble{kFailed, "the daemon sent no trace"});
  const auto text = control::read_descriptor(answer.descriptors.front(), kTraceBytesMax);
  if (!text) return troubled(text.error());
  if (auto trouble = write_whole(*text, path)) return tl::unexpected(*std::move(trouble));
  return text->size();
}

}  // namespace muster::cli
