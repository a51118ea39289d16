#include "api/shm/headroom.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

namespace muster::shm {
namespace {

std::optional<std::string> contents(const std::string& path) {
  const std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::uint64_t difference(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}

void narrow(Headroom* headroom, std::uint64_t bytes, std::string limit, std::string remedy) {
  if (bytes < headroom->bytes) *headroom = {bytes, std::move(limit), std::move(remedy)};
}

struct ControlGroup {
  // File names of one version of the memory controller. File pages do not count as used, because the kernel
  // drops them before it kills: otherwise a job that has read its data set once would look full for ever.
  struct Controller {
    const char* limit;
    const char* used;
    const char* file_pages[2];
  };
  std::string folder;
  const Controller* names;

  std::optional<std::uint64_t> limit() const {
    return parse_cgroup_limit(contents(folder + "/" + names->limit).value_or(""));
  }
};
constexpr ControlGroup::Controller kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr ControlGroup::Controller kVersion2{
    "memory.max", "memory.current", {"inactive_file", "active_file"}};

// From the group of this process up to the root, because each ancestor's limit binds. A container sees its
// own group as the root, under a path that does not exist here; then the root's limit is read.
void append_ancestors(const std::string& root, std::string path, const ControlGroup::Controller& names,
                      std::vector<ControlGroup>* groups) {
  while (!path.empty() && path != "/") {
    groups->push_back({root + path, &names});
    const std::size_t cut = path.rfind('/');
    path.resize(cut == std::string::npos ? 0 : cut);
  }
  groups->push_back({root, &names});
}

std::vector<ControlGroup> groups_of_self(const Headroom::Files& files) {
  std::vector<ControlGroup> groups;
  const std::string self = contents(files.cgroup_of_self).value_or("");
  if (const auto path = parse_cgroup_path(self, "memory"))
    append_ancestors(files.cgroup_root + "/memory", *path, kVersion1, &groups);
  if (const auto path = parse_cgroup_path(self, ""))
    append_ancestors(files.cgroup_root, *path, kVersion2, &groups);
  return groups;
}

void apply_group(const ControlGroup& group, Headroom* headroom) {
  const auto limit = group.limit();
  if (!limit) return;
  const ControlGroup::Controller& names = *group.names;
  const std::uint64_t used =
      parse_cgroup_limit(contents(group.folder + "/" + names.used).value_or("")).value_or(0);
  const std::string stat = contents(group.folder + "/memory.stat").value_or("");
  const std::uint64_t reclaimable =
      parse_stat_value(stat, names.file_pages[0]) + parse_stat_value(stat, names.file_pages[1]);
  narrow(headroom, difference(*limit, difference(used, reclaimable)),
         fmt::format("cgroup limit {}/{} of {} bytes", group.folder, names.limit, *limit),
         "raise the memory limit of the cgroup");
}

}  // namespace

std::optional<std::uint64_t> parse_cgroup_limit(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::uint64_t kNoLimit = std::uint64_t{1}
                                     << 60;  // version 1 writes the largest page-aligned number
  if (error != std::errc() || value >= kNoLimit) return std::nullopt;
  return value;
}

std::uint64_t parse_stat_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    if (rest.empty() || (rest.front() != ' ' && rest.front() != ':')) continue;
    const std::size_t digit = rest.find_first_of("0123456789");
    if (digit == std::string_view::npos) return 0;
    rest.remove_prefix(digit);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) return 0;
    return rest.ends_with("kB") && value < UINT64_MAX / 1024 ? value * 1024 : value;
  }
  return 0;
}

std::optional<std::string> parse_cgroup_path(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    if (controller.empty() && names.empty()) return std::string(line.substr(second + 1));
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      if (name == controller) return std::string(line.substr(second + 1));
    }
  }
  return std::nullopt;
}

Headroom memory_headroom(const Headroom::Files& files) {
  Headroom headroom;
  for (const ControlGroup& group : groups_of_self(files)) apply_group(group, &headroom);
  if (const auto meminfo = contents(files.meminfo)) {
    const std::uint64_t available =
        parse_stat_value(*meminfo, "MemAvailable") + parse_stat_value(*meminfo, "SwapFree");
    if (available > 0)
      narrow(&headroom, available, "available memory of this machine", "free memory or use less");
  }
  rlimit file_size{};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur != RLIM_INFINITY)
    narrow(&headroom, file_size.rlim_cur, fmt::format("RLIMIT_FSIZE of {} bytes", file_size.rlim_cur),
           "raise it with ulimit -f or LimitFSIZE=");
  return headroom;
}

std::uint64_t memory_capacity(const Headroom::Files& files) {
  const std::uint64_t total = parse_stat_value(contents(files.meminfo).value_or(""), "MemTotal");
  std::uint64_t least = total > 0 ? total : UINT64_MAX;
  for (const ControlGroup& group : groups_of_self(files))
    least = std::min(least, group.limit().value_or(UINT64_MAX));
  return least == UINT64_MAX ? 0 : least;
}

}  // namespace muster::shm
