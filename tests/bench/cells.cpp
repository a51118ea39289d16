#include "tests/bench/cells.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace muster::bench {
namespace {

template<class T>
std::string joined(const std::vector<T>& parts) {
  std::ostringstream text;
  for (std::size_t i = 0; i < parts.size(); ++i) text << (i == 0 ? "" : ",") << parts[i];
  return text.str();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<std::string> all_names() {
  std::vector<std::string> names(kAlone.begin(), kAlone.end());
  names.insert(names.end(), kBesides.begin(), kBesides.end());
  for (const Operation operation : all_operations()) names.emplace_back(name_of(operation));
  return names;
}

bool Cells::wants(const std::string& operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

std::vector<std::string> to_arguments(const Cells& cells) {
  return {cells.path,
          joined(cells.operations),
          joined(cells.sizes),
          std::to_string(cells.effort.seconds),
          std::to_string(cells.effort.samples),
          std::to_string(cells.effort.limit),
          std::to_string(cells.effort.patience),
          std::to_string(cells.root_pid)};
}

Cells cells_of(std::span<char* const> arguments) {
  Cells cells;
  if (arguments.size() == 8) {
    cells.path = arguments[0];
    cells.operations = split(arguments[1]);
    for (const std::string& size : split(arguments[2]))
      cells.sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
    cells.effort.seconds = std::strtod(arguments[3], nullptr);
    cells.effort.samples = static_cast<int>(std::strtol(arguments[4], nullptr, 10));
    cells.effort.limit = std::strtod(arguments[5], nullptr);
    cells.effort.patience = std::strtod(arguments[6], nullptr);
    cells.root_pid = static_cast<int>(std::strtol(arguments[7], nullptr, 10));
  }
  if (cells.operations.empty() || cells.effort.samples < 1 || cells.effort.seconds <= 0.0) {
    std::fprintf(stderr,
                 "a rank program of muster-bench takes PATH OPERATIONS BYTES SECONDS SAMPLES LIMIT PATIENCE "
                 "PID, as muster-bench gives them\n");
    std::exit(EXIT_FAILURE);
  }
  return cells;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Timing timing_of(std::vector<double> seconds) {
  const double least = *std::min_element(seconds.begin(), seconds.end());
  const int samples = static_cast<int>(seconds.size());
  return {median_of(std::move(seconds)) * 1e6, least * 1e6, samples};
}

void print_row(const Contender& contender, const Cells& cells, const std::string& operation,
               std::size_t bytes, const Timing& timing) {
  if (contender.rank() != 0) return;
  std::printf(
      "{\"operation\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"path\":\"%s\",\"peer\":\"%s\",\"median_us\":%.4f,"
      "\"minimum_us\":%.4f,\"samples\":%d}\n",
      operation.c_str(), bytes, contender.ranks(), cells.path.c_str(), contender.name(), timing.median_us,
      timing.minimum_us, timing.samples);
  std::fflush(stdout);
}

void print_figure(const Contender& contender, const Cells& cells, const std::string& figure, double value,
                  const char* unit) {
  if (contender.rank() != 0) return;
  std::printf(
      "{\"figure\":\"%s\",\"ranks\":%d,\"path\":\"%s\",\"peer\":\"%s\",\"value\":%.4f,\"unit\":\"%s\"}\n",
      figure.c_str(), contender.ranks(), cells.path.c_str(), contender.name(), value, unit);
  std::fflush(stdout);
}

void print_version(const Contender& contender) {
  if (contender.rank() != 0) return;
  std::printf("{\"peer\":\"%s\",\"version\":\"%s\"}\n", contender.name(), contender.version().c_str());
  std::fflush(stdout);
}

void print_left_out(const Contender& contender, const Cells& cells, const std::string& operation,
                    const std::string& why) {
  if (contender.rank() != 0) return;
  std::printf("{\"left_out\":\"%s over %s, ranks: %d: %s: %s\"}\n", contender.name(), cells.path.c_str(),
              contender.ranks(), operation.c_str(), why.c_str());
  std::fflush(stdout);
}

}  // namespace muster::bench
