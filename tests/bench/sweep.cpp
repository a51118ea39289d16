#include "tests/bench/contender.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace muster::bench {
namespace {

constexpr double kRunsMax = 20'000.0;
constexpr int kSamplesOfSlow = 3;  // of a run that alone exceeds the effort
constexpr std::size_t kPeriod = 7;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double sample(Contender& contender, int runs, const std::function<void()>& run) {
  contender.barrier();
  const double start = now();
  for (int i = 0; i < runs; ++i) run();
  return contender.maximum(now() - start) / runs;
}

// Small whole numbers: every order of summation gives the same sum.
float value(int rank, std::size_t index) {
  return static_cast<float>(rank + 1) + static_cast<float>(index % kPeriod);
}
float sum(int ranks, std::size_t index) {
  return static_cast<float>(ranks * (ranks + 1) / 2) +
         static_cast<float>(ranks) * static_cast<float>(index % kPeriod);
}

float expected(const std::string& operation, int rank, int ranks, const Extent& extent, std::size_t index) {
  if (operation == "all_gather") return value(static_cast<int>(index / extent.source), index % extent.source);
  if (operation == "reduce_scatter")
    return sum(ranks, index + static_cast<std::size_t>(rank) * extent.target);
  return sum(ranks, index);
}

// One run on known values. All ranks agree on the verdict, so that none is left waiting for another.
void verify(Contender& contender, const std::string& operation, const Extent& extent,
            const Prepared& prepared) {
  for (std::size_t i = 0; i < extent.source; ++i) prepared.source[i] = value(contender.rank(), i);
  std::fill(prepared.target.begin(), prepared.target.end(), -1.0f);
  contender.barrier();
  prepared.run();
  bool good = true;
  for (std::size_t i = 0; good && i < extent.target; ++i) {
    const float want = expected(operation, contender.rank(), contender.ranks(), extent, i);
    good = prepared.target[i] == want;
    if (!good)
      std::fprintf(stderr, "%s: %s of %zu elements is wrong on rank %d: element %zu is %g instead of %g\n",
                   contender.name(), operation.c_str(), extent.target, contender.rank(), i,
                   static_cast<double>(prepared.target[i]), static_cast<double>(want));
  }
  if (contender.maximum(good ? 0.0 : 1.0) != 0.0) std::exit(EXIT_FAILURE);
}

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

bool Cells::wants(const std::string& operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

std::vector<std::string> to_arguments(const Cells& cells) {
  return {cells.path, joined(cells.operations), joined(cells.sizes), std::to_string(cells.effort.seconds),
          std::to_string(cells.effort.samples)};
}

Cells cells_of(std::span<char* const> arguments) {
  Cells cells;
  if (arguments.size() == 5) {
    cells.path = arguments[0];
    cells.operations = split(arguments[1]);
    for (const std::string& size : split(arguments[2]))
      cells.sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
    cells.effort.seconds = std::strtod(arguments[3], nullptr);
    cells.effort.samples = static_cast<int>(std::strtol(arguments[4], nullptr, 10));
  }
  if (cells.effort.samples < 1 || cells.effort.seconds <= 0.0) {
    std::fprintf(stderr, "a rank program of muster-bench takes PATH OPERATIONS BYTES SECONDS SAMPLES\n");
    std::exit(EXIT_FAILURE);
  }
  return cells;
}

Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  const double median = seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  return {median * 1e6, seconds.front() * 1e6};
}

Timing measure(Contender& contender, const Effort& effort, const std::function<void()>& run) {
  double once = sample(contender, 1, run);
  if (once < effort.seconds)
    for (int i = 0; i < 3; ++i) once = std::min(once, sample(contender, 2, run));
  const int samples = once > effort.seconds ? std::min(kSamplesOfSlow, effort.samples) : effort.samples;
  const int runs = static_cast<int>(std::clamp(effort.seconds / samples / once, 1.0, kRunsMax));
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(sample(contender, runs, run));
  return timing_of(std::move(seconds));
}

Extent extent_of(const std::string& operation, std::size_t bytes, int ranks) {
  const std::size_t total = bytes / sizeof(float);
  const std::size_t part = std::max<std::size_t>(1, total / static_cast<std::size_t>(ranks));
  if (operation == "all_gather") return {part, part * static_cast<std::size_t>(ranks)};
  if (operation == "reduce_scatter") return {part * static_cast<std::size_t>(ranks), part};
  return {total, total};
}

void sweep(Contender& contender, const Cells& cells) {
  if (cells.wants("barrier"))
    print_row(contender, cells, "barrier", 0, measure(contender, cells.effort, [&] { contender.barrier(); }));
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter"}) {
    if (!cells.wants(operation)) continue;
    for (const std::size_t bytes : cells.sizes) {
      const Extent extent = extent_of(operation, bytes, contender.ranks());
      const Prepared prepared = contender.prepare(operation, extent);
      verify(contender, operation, extent, prepared);
      const std::size_t vector = std::max(extent.source, extent.target) * sizeof(float);
      print_row(contender, cells, operation, vector, measure(contender, cells.effort, prepared.run));
    }
  }
}

void print_row(const Contender& contender, const Cells& cells, const char* operation, std::size_t bytes,
               const Timing& timing) {
  if (contender.rank() != 0) return;
  std::printf(
      "{\"operation\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"path\":\"%s\",\"peer\":\"%s\",\"median_us\":%.4f,"
      "\"minimum_us\":%.4f}\n",
      operation, bytes, contender.ranks(), cells.path.c_str(), contender.name(), timing.median_us,
      timing.minimum_us);
  std::fflush(stdout);
}

}  // namespace muster::bench
