// Resources that a process holds, as the kernel counts them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace muster::test {

struct Holdings {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;  // of memory files
};

inline Holdings holdings_of(pid_t pid) {
  Holdings holdings;
  std::error_code gone;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), gone))
    ++holdings.descriptors;
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string text; std::getline(maps, text);)
    if (text.find("memfd:") != std::string::npos) ++holdings.mappings;
  return holdings;
}

// The process's descriptors, once there are at most so many, or after five seconds.
inline std::size_t await_descriptors(pid_t pid, std::size_t most) {
  for (int i = 0; i < 500 && holdings_of(pid).descriptors > most; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holdings_of(pid).descriptors;
}

// The engines among this process's children.
inline std::vector<pid_t> engines() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string text;
    std::getline(stat, text);
    const auto close = text.rfind(')');
    if (close == std::string::npos || text.find("(muster-engine)") == std::string::npos) continue;
    if (std::atoi(text.c_str() + close + 4) == getpid()) found.push_back(std::atoi(name.c_str()));
  }
  return found;
}

}  // namespace muster::test
