#include "tests/bench/resident.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

namespace muster::bench {
namespace {

// The fourth word of stat, after a name in brackets that may hold anything.
int parent_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return 0;
  return static_cast<int>(std::strtol(text.c_str() + name_end + 4, nullptr, 10));
}

double resident_kib(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::strtod(line.c_str() + 4, nullptr);
  return 0.0;
}

double resident_kib_below(const std::multimap<int, int>& children, int root) {
  double kib = 0.0;
  for (auto [it, end] = children.equal_range(root); it != end; ++it)
    kib += resident_kib(it->second) + resident_kib_below(children, it->second);
  return kib;
}

}  // namespace

double resident_mib_below(int root) {
  std::multimap<int, int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const int pid = static_cast<int>(std::strtol(name.c_str(), nullptr, 10));
    if (const int parent = parent_of(entry.path()); parent > 0) children.emplace(parent, pid);
  }
  return resident_kib_below(children, root) / 1024.0;
}

}  // namespace muster::bench
