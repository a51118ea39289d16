#include "daemon/cli/trace_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

namespace muster::cli {
namespace {

constexpr std::size_t kTraceBytesMax = std::size_t{4} << 30;

tl::unexpected<Trouble> cannot_write(const std::string& path, int error) {
  return tl::unexpected(
      Trouble{kFailed, fmt::format("{} cannot be written: {}", path, std::strerror(error))});
}

}  // namespace

Outcome<std::uint64_t> write_trace(const Answer& answer, const std::string& path) {
  if (answer.descriptors.size() != 1) return tl::unexpected(Trouble{kFailed, "the daemon sent no trace"});
  const auto text = control::read_descriptor(answer.descriptors.front(), kTraceBytesMax);
  if (!text) return troubled(text.error());
  const std::string partial = path + ".partial";
  shm::Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return cannot_write(partial, errno);
  std::size_t written = 0;
  while (written < text->size()) {
    const ssize_t n = ::write(file.get(), text->data() + written, text->size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      ::unlink(partial.c_str());
      return cannot_write(path, error);
    }
    written += static_cast<std::size_t>(n);
  }
  file.reset();
  if (::rename(partial.c_str(), path.c_str()) != 0) return cannot_write(path, errno);
  return text->size();
}

}  // namespace muster::cli
