#include "tests/bench/descendants.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>

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

}  // namespace

std::vector<int> descendants_of(int root) {
  std::multimap<int, int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    children.emplace(parent_of(entry.path()), static_cast<int>(std::strtol(name.c_str(), nullptr, 10)));
  }
  std::vector<int> found = {root};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (auto [it, end] = children.equal_range(found[i]); it != end; ++it) found.push_back(it->second);
  found.erase(found.begin());
  return found;
}

}  // namespace muster::bench
