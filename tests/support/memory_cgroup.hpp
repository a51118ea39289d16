// A cgroup with a limit of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace muster::test {

// Owns    the cgroup, if this user may make one: then it is valid. The end moves its processes to the parent
//         cgroup.
// Thread  one.
// Fails   it is not valid.
class MemoryCgroup {
 public:
  MemoryCgroup(const std::string& name, std::uint64_t limit_bytes) {
    for (const auto& [root, file] : {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                     std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      std::error_code error;
      if (!std::filesystem::exists(root, error)) continue;
      folder_ = std::string(root) + "/muster-test-" + std::to_string(getpid()) + "-" + name;
      if (!std::filesystem::create_directory(folder_, error)) continue;
      limit_ = folder_ + "/" + file;
      valid_ = std::filesystem::exists(limit_, error) && write(limit_, limit_bytes);
      // Nothing goes to the disk instead.
      for (const char* swap : {"/memory.swappiness", "/memory.swap.max"})
        if (std::filesystem::exists(folder_ + swap, error)) static_cast<void>(write(folder_ + swap, 0));
      if (valid_) return;
      std::filesystem::remove(folder_, error);
    }
  }
  ~MemoryCgroup() {
    std::error_code error;
    for (int i = 0; valid_ && i < 500; ++i, usleep(10'000)) {
      std::ifstream inside(folder_ + "/cgroup.procs");
      const std::string root = std::filesystem::path(folder_).parent_path();
      for (std::uint64_t pid = 0; inside >> pid;) write(root + "/cgroup.procs", pid);
      if (std::filesystem::remove(folder_, error)) return;
    }
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  bool valid() const { return valid_; }
  // All memory that the process requests from now on counts.
  bool take(pid_t pid) const { return write(folder_ + "/cgroup.procs", static_cast<std::uint64_t>(pid)); }
  // The file that holds the limit.
  const std::string& limit() const { return limit_; }

 private:
  static bool write(const std::string& path, std::uint64_t value) {
    std::ofstream file(path);
    file << value << std::flush;
    return static_cast<bool>(file);
  }

  std::string folder_, limit_;
  bool valid_ = false;
};

}  // namespace muster::test
