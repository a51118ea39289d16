// DiskFile: a descriptor of a file or a folder, with failures as sentences that name it.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace muster::store {

// "cannot open /tmp/x: No such file or directory". Errors: kNotFound for ENOENT, kDenied for EACCES and
// EPERM, else kNoResource.
Status trouble(const char* what, const std::string& path, int error);

// Asked now and then by what takes long; a failure ends it with that failure. May be empty.
using Pause = std::function<Status()>;
inline Status ask(const Pause& pause) {
  return pause ? pause() : Status();
}

// Owns    one descriptor.
// Thread  one at a time.
// Bound   -
// Fails   with kNoResource, kNotFound or kDenied; the sentence names the path.
class DiskFile {
 public:
  DiskFile() = default;
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  ~DiskFile();

  enum class LastLink : std::uint8_t { kRefuse, kFollow };  // where the path itself is a symbolic link
  static Result<DiskFile> read(const std::string& path, LastLink link = LastLink::kRefuse);
  // The file must not be there. With `known_as`, sentences name that: of a file that gets its name later.
  static Result<DiskFile> create(const std::string& path, const std::string& known_as = "");
  static Result<DiskFile> folder(const std::string& path);

  const std::string& path() const { return path_; }
  int number() const { return number_; }
  bool valid() const { return number_ >= 0; }
  Result<std::uint64_t> bytes() const;
  // All of `into` from `at` on. kCorrupt where the file ends before.
  Status read_at(std::uint64_t at, std::span<std::byte> into) const;
  Status write(std::span<const std::byte> from);  // behind what was written
  Status sync() const;                            // of a folder: its entries
  Status close();                                 // errors that a destructor would lose

 private:
  DiskFile(std::string path, int number) : path_(std::move(path)), number_(number) {}
  static Result<DiskFile> open(const std::string& path, int flags, const std::string& known_as = "");

  std::string path_;
  int number_ = -1;
};

// The whole file, which has `most` bytes at most.
Result<std::string> read_text(const std::string& path, std::uint64_t most,
                              DiskFile::LastLink link = DiskFile::LastLink::kRefuse);
// Creates the file with this text, and waits until it is on the disk.
Status write_text(const std::string& path, std::string_view text);
// Gives a file or a folder another name, at once. Errors: kDuplicate (something has that name already).
Status rename_to_new(const std::string& from, const std::string& to);
// The folder and all in it, file by file.
Status remove_folder(const std::string& path, const Pause& pause = Pause());
// Distinguishes an attempt from others, of this process or of another: a killed process may have left files.
std::uint64_t fresh_nonce();

}  // namespace muster::store
