// Standard error of this program, and of the engines that it starts, in a file.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::test {

// Owns    the file, which has no name, and the former standard error.
// Thread  one.
// Bound   the file grows.
// Fails   a file that cannot be had leaves the text empty.
class CapturedErrors {
 public:
  CapturedErrors() : kept_(dup(STDERR_FILENO)), file_(memfd_create("stderr", MFD_CLOEXEC)) {
    dup2(file_, STDERR_FILENO);
  }
  ~CapturedErrors() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    close(file_);
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  std::string text() const {
    std::ifstream file(fmt::format("/proc/self/fd/{}", file_), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  int kept_, file_;
};

}  // namespace muster::test
