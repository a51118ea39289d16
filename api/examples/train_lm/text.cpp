#include "api/examples/train_lm/text.hpp"

#include "api/examples/training/random.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace train_lm {

using namespace training;

namespace {

constexpr std::uintmax_t kTextBytesMax = std::uintmax_t{1} << 30;
constexpr const char* kLicenceFolder = "/usr/share/common-licenses/";
constexpr const char* kLicences[] = {"GPL-3",    "GPL-2",   "GPL-1",   "LGPL-3",  "LGPL-2.1",   "LGPL-2",
                                     "GFDL-1.3", "MPL-2.0", "MPL-1.1", "CC0-1.0", "Apache-2.0", "Artistic"};

std::string read(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status))
    throw UsageError("text " + path + " is a folder; --text takes one file");
  // A device or a pipe may have no end, and each rank must read the same bytes.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw UsageError("text " + path + " is not a regular file; copy it into one");
  if (const auto bytes = std::filesystem::file_size(path, ignored); !ignored && bytes > kTextBytesMax)
    throw UsageError("text " + path + " has " + std::to_string(bytes) +
                     " bytes, and each rank holds all of " + "them; at most " +
                     std::to_string(kTextBytesMax) + " are possible, so cut it");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError("text " + path + " cannot be opened: " + std::strerror(errno));
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw UsageError("text " + path + " cannot be read: " + std::strerror(errno));
  return bytes;
}

std::string licences() {
  std::string bytes;
  for (const char* name : kLicences) {
    const std::string path = std::string(kLicenceFolder) + name;
    if (std::filesystem::exists(path)) bytes += read(path);
  }
  return bytes;
}

}  // namespace

Text Text::load(const std::string& path, std::int64_t context) {
  std::string bytes = path.empty() ? licences() : read(path);
  const std::string name = path.empty() ? std::string("in ") + kLicenceFolder : path;
  if (bytes.empty()) throw UsageError("text " + name + " is empty; name a file with --text");
  if (static_cast<std::int64_t>(bytes.size()) < context + 1)
    throw UsageError("text " + name + " has " + std::to_string(bytes.size()) + " bytes; --context " +
                     std::to_string(context) + " needs at least " + std::to_string(context + 1));
  return Text(std::move(bytes), context);
}

// FNV-1a: tells texts of one length apart. It protects against mistakes alone.
std::uint64_t Text::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes_) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

std::span<const char> Text::sequence(std::uint64_t seed, std::int64_t step, std::int64_t batch,
                                     std::int64_t row) const {
  const CounterRandom random(seed, "batch");
  const std::uint64_t starts = bytes_.size() - static_cast<std::size_t>(context_);
  const std::uint64_t start = random.bits(static_cast<std::uint64_t>(step * batch + row)) % starts;
  return std::span(bytes_).subspan(start, static_cast<std::size_t>(context_) + 1);
}

}  // namespace train_lm
