#include "daemon/engine/session/process_state.hpp"

#include <array>
#include <charconv>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace muster::engine {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;
constexpr std::size_t kPieceBytes = 4096;

std::optional<std::string> contents(const std::string& path) {
  const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string text;
  std::array<char, kPieceBytes> piece;
  while (text.size() < kFileBytesMax) {
    const ssize_t bytes = ::read(file.get(), piece.data(), piece.size());
    if (bytes <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

bool says(const std::string& path, std::string_view line) {
  const auto text = contents(path);
  if (!text) return false;
  std::istringstream lines(*text);
  for (std::string one; std::getline(lines, one);)
    if (one == line) return true;
  return false;
}

}  // namespace

// The process name may hold any character, so fields are counted from behind its last ')'.
std::optional<ProcessStat> parse_process_stat(std::string_view line) {
  constexpr int kFieldsToStart = 19;  // from the state, field 3, to starttime, field 22
  const auto close = line.rfind(") ");
  if (close == std::string_view::npos || close + 3 > line.size()) return std::nullopt;
  std::string_view rest = line.substr(close + 2);
  ProcessStat stat;
  stat.state = rest.front();
  for (int field = 0; field < kFieldsToStart; ++field) {
    const auto space = rest.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(space + 1);
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), stat.started);
  if (error != std::errc()) return std::nullopt;
  return stat;
}

bool has_ended(const shm::Descriptor& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

ProcessId SystemProcesses::identify(std::int32_t pid) const {
  const auto line = contents(fmt::format("{}/{}/stat", files_.proc, pid));
  const auto stat = line ? parse_process_stat(*line) : std::nullopt;
  return {pid, stat ? stat->started : 0};
}

// Lines of version 1 name their controllers; the line of version 2 names none. If both are mounted, version 2
// lies in `unified`. A cgroup is frozen also if one above it is.
std::optional<std::string> SystemProcesses::frozen_cgroup(std::int32_t pid) const {
  const auto text = contents(fmt::format("{}/{}/cgroup", files_.proc, pid));
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.find("..") != std::string::npos) continue;  // outside of what is mounted here
    if (controllers == "freezer") {
      const std::string folder = files_.cgroups + "/freezer" + path;
      if (says(folder + "/freezer.state", "FROZEN")) return folder;
    } else if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {
        const std::string folder = files_.cgroups + mount + path;
        if (says(folder + "/cgroup.events", "frozen 1")) return folder;
      }
    }
  }
  return std::nullopt;
}

ProcessSight SystemProcesses::look(const ProcessId& process) const {
  using Process = blame::RankState::Process;
  if (process.pid <= 0 || process.started == 0) return {};
  const auto line = contents(fmt::format("{}/{}/stat", files_.proc, process.pid));
  if (!line) return {Process::kDead, ""};
  const auto stat = parse_process_stat(*line);
  if (!stat) return {};
  if (stat->started != process.started || stat->state == 'Z' || stat->state == 'X')
    return {Process::kDead, ""};
  if (auto cgroup = frozen_cgroup(process.pid)) return {Process::kFrozen, *std::move(cgroup)};
  const bool stopped = stat->state == 'T' || stat->state == 't';
  return {stopped ? Process::kStopped : Process::kRunning, ""};
}

}  // namespace muster::engine
