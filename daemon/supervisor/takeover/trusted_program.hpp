// TrustedProgram: a program that may take the daemon's place. It is opened once, and run by that descriptor.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// A user that may write the program, or rename a folder above it, could run any code as the daemon's user. So
// it lies in a folder that the settings name. It and all folders above it belong to root or to this user, and
// nobody else may write to them. A sticky folder, such as /tmp, counts as safe: others cannot rename a file
// in it.
//
// Owns    the open file.
// Thread  a value; one at a time.
// Bound   -
// Fails   open: kBadArgument (no such file, or not in one of the folders), kDenied (others may change it,
//         or it cannot be run).
class TrustedProgram {
 public:
  // `path`: absolute; links are followed. `folders`: absolute paths.
  static Result<TrustedProgram> open(const std::string& path, const std::vector<std::string>& folders);

  // A second descriptor of it, with a number of at least `least`. Invalid: errno says why.
  shm::Descriptor copy_above(int least) const;
  // Replaces the calling process by the program behind such a descriptor; returns errno. Async-signal-safe.
  static int execute(int file, char* const* arguments, char* const* environment);

  const std::string& path() const { return path_; }

 private:
  TrustedProgram(std::string path, shm::Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;  // without links
  shm::Descriptor file_;
};

// The folders in "/usr/sbin:/opt/muster/bin". kBadArgument if one is not absolute.
Result<std::vector<std::string>> program_folders(const std::string& list);

}  // namespace muster::supervisor
