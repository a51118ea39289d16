#include "tests/bench/report.hpp"

#include "tests/bench/cells.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <tuple>

#include <sched.h>
#include <sys/utsname.h>

namespace muster::bench {
namespace {

constexpr int kSchemaVersion = 2;
constexpr const char* kNone = "-";
constexpr const char* kMuster = "muster";

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::size_t place_of(const std::string& operation) {
  static const std::vector<std::string> names = all_names();
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), operation) - names.begin());
}

// operation, bytes, ranks, path, muster, best peer, whose, ratio, floor, share
using Words = std::array<std::string, 10>;
std::string line_of(const Words& words) {
  return fmt::format("{:<16} {:>7} {:>5}  {:<6} {:>9} {:>9} {:<15} {:>11} {:>9} {:>7}\n", words[0], words[1],
                     words[2], words[3], words[4], words[5], words[6], words[7], words[8], words[9]);
}

}  // namespace

std::string figure_text(double value) {
  const double size = std::abs(value);
  if (size >= 100.0) return fmt::format("{:.0f}", value);
  if (size >= 10.0) return fmt::format("{:.1f}", value);
  if (size >= 1.0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string size_text(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20 && bytes % (std::size_t{1} << 20) == 0)
    return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
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
      take_line(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& wrong) {
      return failure(Code::kProtocol, "'{}' is no row: {}", text, wrong.what());
    }
  }
  return {};
}

void Report::leave_out(std::string what) {
  if (std::find(left_out_.begin(), left_out_.end(), what) == left_out_.end())
    left_out_.push_back(std::move(what));
}

void Report::add(Row row) {
  for (Row& known : rows_) {
    if (cell_of(known) != cell_of(row) || known.path != row.path || known.peer != row.peer) continue;
    known.median_us = std::min(known.median_us, row.median_us);
    known.minimum_us = std::min(known.minimum_us, row.minimum_us);
    known.samples += row.samples;
    return;
  }
  rows_.push_back(std::move(row));
}

void Report::take_line(const nlohmann::json& line) {
  if (line.contains("left_out")) return leave_out(line.at("left_out").get<std::string>());
  const auto peer = line.at("peer").get<std::string>();
  if (line.contains("version")) {
    versions_[peer] = line.at("version").get<std::string>();
  } else if (line.contains("figure")) {
    figures_.push_back({line.at("figure").get<std::string>(), line.at("ranks").get<int>(),
                        line.at("path").get<std::string>(), peer, line.at("value").get<double>(),
                        line.at("unit").get<std::string>()});
  } else {
    add({line.at("operation").get<std::string>(), line.at("bytes").get<std::size_t>(),
         line.at("ranks").get<int>(), line.at("path").get<std::string>(), peer,
         line.at("median_us").get<double>(), line.at("minimum_us").get<double>(),
         line.at("samples").get<int>()});
  }
}

std::vector<Cell> Report::cells() const {
  std::set<Cell> known;
  for (const Row& row : rows_) known.insert(cell_of(row));
  std::vector<Cell> cells(known.begin(), known.end());
  std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) {
    return std::tuple(a.ranks, place_of(a.operation), a.bytes) <
           std::tuple(b.ranks, place_of(b.operation), b.bytes);
  });
  return cells;
}

const Row* Report::best_peer(const Cell& cell) const {
  const Row* found = nullptr;
  for (const Row& row : rows_)
    if (row.peer != kMuster && cell_of(row) == cell && (found == nullptr || row.median_us < found->median_us))
      found = &row;
  return found;
}

std::optional<double> Report::floor(const Cell& cell) const {
  const auto it = floors_.find(cell);
  return it == floors_.end() ? std::nullopt : std::optional(it->second);
}

std::string Report::text() const {
  return table() + figure_lines() + summary();
}

std::string Report::table() const {
  std::string text = line_of({"operation", "bytes", "ranks", "path", "muster µs", " peer µs", "best peer",
                              "peer/muster", " floor µs", "floor %"});
  for (const Cell& cell : cells()) {
    const Row* peer = best_peer(cell);
    const auto floor_us = floor(cell);
    const auto add_line = [&](const Row* mine) {
      text += line_of(
          {cell.operation, cell.bytes == 0 ? kNone : size_text(cell.bytes), fmt::to_string(cell.ranks),
           mine == nullptr ? kNone : mine->path, mine == nullptr ? kNone : figure_text(mine->median_us),
           peer == nullptr ? kNone : figure_text(peer->median_us),
           peer == nullptr ? kNone : peer->peer + "/" + peer->path,
           mine == nullptr || peer == nullptr ? kNone : figure_text(peer->median_us / mine->median_us),
           floor_us ? figure_text(*floor_us) : kNone,
           mine != nullptr && floor_us ? figure_text(100.0 * *floor_us / mine->median_us) : kNone});
    };
    bool has_mine = false;
    for (const Row& row : rows_)
      if (row.peer == kMuster && cell_of(row) == cell) {
        add_line(&row);
        has_mine = true;
      }
    if (!has_mine) add_line(nullptr);
  }
  return text;
}

std::string Report::figure_lines() const {
  std::string text;
  for (const Figure& figure : figures_)
    text += fmt::format("{:<16} {:>13}  {:<24} {:>9} {}\n", figure.name, figure.ranks,
                        figure.peer + "/" + figure.path, figure_text(figure.value), figure.unit);
  return text.empty() ? text : "\n" + text;
}

std::string Report::summary() const {
  std::string text = "\n";
  std::set<std::string> paths;
  for (const Row& row : rows_)
    if (row.peer == kMuster) paths.insert(row.path);
  for (const std::string& path : paths) text += summary_of(path);
  for (const auto& [peer, version] : versions_) text += fmt::format("{} {}\n", peer, version);
  for (const std::string& what : left_out_) text += fmt::format("left out: {}\n", what);
  return text;
}

// How a path does as a whole, over the cells that a peer has too, and over those that have a floor.
std::string Report::summary_of(const std::string& path) const {
  std::vector<double> ratios;
  std::vector<double> shares;
  std::size_t ahead = 0;
  for (const Row& row : rows_) {
    if (row.peer != kMuster || row.path != path || !operation_named(row.operation)) continue;
    if (const Row* peer = best_peer(cell_of(row))) {
      ratios.push_back(peer->median_us / row.median_us);
      ahead += ratios.back() > 1.0 ? 1 : 0;
    }
    if (const auto least = floor(cell_of(row))) shares.push_back(100.0 * *least / row.median_us);
  }
  std::string text;
  if (!ratios.empty())
    text += fmt::format(
        "{}: ahead of the best peer in {} of {} cells, peer/muster {} at least, {} in the median\n", path,
        ahead, ratios.size(), figure_text(*std::min_element(ratios.begin(), ratios.end())),
        figure_text(median_of(ratios)));
  if (!shares.empty())
    text += fmt::format("{}: {} % of the floor's speed at least, {} % in the median\n", path,
                        figure_text(*std::min_element(shares.begin(), shares.end())),
                        figure_text(median_of(shares)));
  return text;
}

nlohmann::json Report::to_json(nlohmann::json machine) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    const auto least = floor(cell_of(row));
    rows.push_back({{"operation", row.operation},
                    {"bytes", row.bytes},
                    {"ranks", row.ranks},
                    {"path", row.path},
                    {"peer", row.peer},
                    {"median_us", row.median_us},
                    {"minimum_us", row.minimum_us},
                    {"samples", row.samples},
                    {"floor_us", least ? nlohmann::json(*least) : nlohmann::json()}});
  }
  nlohmann::json figures = nlohmann::json::array();
  for (const Figure& figure : figures_)
    figures.push_back({{"figure", figure.name},
                       {"ranks", figure.ranks},
                       {"path", figure.path},
                       {"peer", figure.peer},
                       {"value", figure.value},
                       {"unit", figure.unit}});
  return {{"schema_version", kSchemaVersion}, {"machine", std::move(machine)}, {"versions", versions_},
          {"rows", std::move(rows)},          {"figures", std::move(figures)}, {"left_out", left_out_}};
}

Status Report::write(const std::string& path, nlohmann::json machine) const {
  std::ofstream file(path);
  file << to_json(std::move(machine)).dump(2) << '\n';
  file.close();
  if (!file) return failure(Code::kNoResource, "{} cannot be written: {}", path, std::strerror(errno));
  return {};
}

}  // namespace muster::bench
