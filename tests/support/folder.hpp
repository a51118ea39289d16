// A directory of a test's own: two runs at once are apart.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace muster::test {

// Owns    the directory and all in it. Declare it before its writers, so that it is destroyed after them.
// Thread  any, as files do.
// Bound   -
// Fails   the constructor ends the test program. A file that cannot be removed stays.
class Folder {
 public:
  Folder() {
    std::string path = "/tmp/muster-test-XXXXXX";  // short: the path of a socket has 107 bytes
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file) << text;
    return file;
  }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

}  // namespace muster::test
