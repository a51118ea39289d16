#include "tests/bench/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include <sched.h>
#include <sys/utsname.h>

namespace muster::bench {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kNone = "-";

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

// Three digits that say something.
std::string figure(double value) {
  if (value >= 100.0) return fmt::format("{:.0f}", value);
  if (value >= 10.0) return fmt::format("{:.1f}", value);
  if (value >= 1.0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string size_text(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20 && bytes % (std::size_t{1} << 20) == 0)
    return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string line(const std::string& operation, const std::string& bytes, const std::string& ranks,
                 const std::string& path, const std::string& muster, const std::string& peer,
                 const std::string& ratio, const std::string& floor, const std::string& distance) {
  return fmt::format("{:<15} {:>8} {:>5}  {:<7} {:>11} {:>22} {:>11} {:>9} {:>12}\n", operation, bytes, ranks,
                     path, muster, peer, ratio, floor, distance);
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

nlohmann::json describe_machine() {
  utsname system{};
  uname(&system);
  double load = 0.0;
  std::ifstream("/proc/loadavg") >> load;
  return {{"cpu", cpu_name()},
          {"cores", usable_cores()},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"load_average", load}};
}

Status Report::take(std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), text.size() + 1));
    if (!text.starts_with('{')) continue;
    try {
      const auto json = nlohmann::json::parse(text);
      add({json.at("operation").get<std::string>(), json.at("bytes").get<std::size_t>(),
           json.at("ranks").get<int>(), json.at("path").get<std::string>(),
           json.at("peer").get<std::string>(), json.at("median_us").get<double>(),
           json.at("minimum_us").get<double>()});
    } catch (const nlohmann::json::exception& wrong) {
      return failure(Code::kProtocol, "'{}' is no row: {}", text, wrong.what());
    }
  }
  return {};
}

const Row* Report::best(const Row& like, bool floor) const {
  const Row* found = nullptr;
  for (const Row& row : rows_) {
    const bool fits = row.operation == like.operation && row.bytes == like.bytes && row.ranks == like.ranks &&
                      row.peer != like.peer && (row.peer == "floor") == floor;
    if (fits && (found == nullptr || row.median_us < found->median_us)) found = &row;
  }
  return found;
}

std::string Report::table() const {
  std::string text = line("operation", "bytes", "ranks", "path", "muster µs", "best peer µs", "peer/muster",
                          "floor µs", "muster/floor");
  for (const Row& row : rows_) {
    if (row.peer != "muster") continue;
    const Row* peer = best(row, false);
    const Row* floor = best(row, true);
    text += line(row.operation, row.bytes == 0 ? kNone : size_text(row.bytes), fmt::to_string(row.ranks),
                 row.path, figure(row.median_us),
                 peer == nullptr ? kNone : fmt::format("{} {}", figure(peer->median_us), peer->path),
                 peer == nullptr ? kNone : figure(peer->median_us / row.median_us),
                 floor == nullptr ? kNone : figure(floor->median_us),
                 floor == nullptr ? kNone : figure(row.median_us / floor->median_us));
  }
  return text;
}

nlohmann::json Report::to_json(nlohmann::json machine) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_)
    rows.push_back({{"operation", row.operation},
                    {"bytes", row.bytes},
                    {"ranks", row.ranks},
                    {"path", row.path},
                    {"peer", row.peer},
                    {"median_us", row.median_us},
                    {"minimum_us", row.minimum_us}});
  return {{"schema_version", kSchemaVersion}, {"machine", std::move(machine)}, {"rows", std::move(rows)}};
}

Status Report::write(const std::string& path, nlohmann::json machine) const {
  std::ofstream file(path);
  file << to_json(std::move(machine)).dump(2) << '\n';
  file.close();
  if (!file) return failure(Code::kNoResource, "{} cannot be written: {}", path, std::strerror(errno));
  return {};
}

}  // namespace muster::bench
