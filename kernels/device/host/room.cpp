#include "kernels/device/host/memory.hpp"

#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

namespace muster::device::host {
namespace {

// Limits at or above this are the kernel's way to say "none" (version 1: the largest page-aligned 63-bit
// number).
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{}) return std::nullopt;  // "max" included
  return value;
}

// The number after `key` in lines of "key value"; 0 if absent.
std::uint64_t field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

struct Hierarchy {
  std::string root;  // "/sys/fs/cgroup/memory"
  std::string path;  // "/slurm/job_7", "" for the root
  const char* limit_file;
  const char* used_file;
  const char* inactive;  // counters of memory.stat that hold droppable file pages, children included
  const char* active;
};

std::optional<MemoryRoom> room_at(const Hierarchy& h, const std::string& path) {
  const std::string folder = h.root + path;
  const auto limit = read_number(folder + "/" + h.limit_file);
  const auto used = read_number(folder + "/" + h.used_file);
  if (!limit || !used || *limit >= kUnlimited) return std::nullopt;
  const std::string stat = read_text(folder + "/memory.stat").value_or("");
  const std::uint64_t droppable = field(stat, h.inactive) + field(stat, h.active);
  const std::uint64_t held = *used > droppable ? *used - droppable : 0;
  return MemoryRoom{*limit, *limit > held ? *limit - held : 0, folder + "/" + h.limit_file};
}

// Every ancestor binds. In a container the path may not exist under the root, which is then the container's
// own cgroup.
std::optional<MemoryRoom> least_room(const Hierarchy& h) {
  std::optional<MemoryRoom> least;
  for (std::string path = h.path;;) {
    const auto room = room_at(h, path);
    if (room && (!least || room->free < least->free)) least = room;
    if (path.empty()) return least;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::optional<MemoryRoom> cgroup_room(const KernelFiles& files) {
  std::optional<MemoryRoom> least;
  std::istringstream lines(read_text(files.cgroup).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // "4:memory:/path" (version 1, controllers separated by commas) or "0::/path" (version 2).
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.size() <= second + 1 || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    std::optional<MemoryRoom> room;
    if (controllers == ",,")
      room = least_room(
          {files.cgroup_root, path, "memory.max", "memory.current", "inactive_file", "active_file"});
    else if (controllers.find(",memory,") != std::string::npos)
      room = least_room({files.cgroup_root + "/memory", path, "memory.limit_in_bytes",
                         "memory.usage_in_bytes", "total_inactive_file", "total_active_file"});
    if (room && (!least || room->free < least->free)) least = room;
  }
  return least;
}

std::optional<MemoryRoom> node_room(const KernelFiles& files) {
  const auto text = read_text(files.meminfo);
  if (!text) return std::nullopt;
  const std::uint64_t total = field(*text, "MemTotal:") * 1024;
  const std::uint64_t available = field(*text, "MemAvailable:") * 1024;
  if (total == 0) return std::nullopt;
  return MemoryRoom{total, available, "the node's memory"};
}

std::uint64_t memory_total() {
  const KernelFiles files;
  std::uint64_t total = std::numeric_limits<std::uint64_t>::max();
  if (const auto node = node_room(files)) total = node->limit;
  if (const auto cgroup = cgroup_room(files); cgroup && cgroup->limit < total) total = cgroup->limit;
  return total == std::numeric_limits<std::uint64_t>::max() ? 0 : total;
}

}  // namespace muster::device::host
