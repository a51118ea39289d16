// A freezer cgroup.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include <unistd.h>

namespace muster::test {

// Owns    the cgroup, if this user may make one: then it is valid. The end thaws all processes in it.
// Thread  one.
// Bound   -
// Fails   invalid.
class Freezer {
 public:
  explicit Freezer(const std::string& name) {
    for (const std::string root : {"/sys/fs/cgroup/freezer", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      const std::string folder = root + "/muster-test-" + std::to_string(getpid()) + "-" + name;
      std::error_code error;
      if (!std::filesystem::create_directory(folder, error)) continue;
      folder_ = folder;
      if (std::filesystem::exists(folder + "/freezer.state")) control_ = folder + "/freezer.state";
      if (std::filesystem::exists(folder + "/cgroup.freeze")) control_ = folder + "/cgroup.freeze";
      if (!control_.empty()) return;
      std::filesystem::remove(folder, error);
    }
  }
  ~Freezer() {
    if (!valid()) return;
    freeze(false);
    std::error_code error;
    std::filesystem::remove(folder_, error);
  }
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  bool valid() const { return !control_.empty(); }
  void take(pid_t pid) const { std::ofstream(folder_ + "/cgroup.procs") << pid << std::flush; }
  // Waits until all who are in it are frozen, ten seconds at most.
  bool freeze(bool on) const {
    std::ofstream(control_) << (first() ? (on ? "FROZEN" : "THAWED") : (on ? "1" : "0")) << std::flush;
    for (int i = 0; on && i < 1000 && !frozen(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return frozen() == on;
  }
  const std::string& folder() const { return folder_; }

 private:
  bool first() const { return control_.ends_with(".state"); }
  bool frozen() const {
    std::ifstream file(first() ? control_ : folder_ + "/cgroup.events");
    for (std::string line; std::getline(file, line);)
      if (line == "FROZEN" || line == "frozen 1") return true;
    return false;
  }

  std::string folder_;
  std::string control_;
};

}  // namespace muster::test
