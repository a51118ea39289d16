#include "tests/bench/campaign.hpp"

#include "tests/bench/contract.hpp"
#include "tests/bench/memory_floor.hpp"
#include "tests/bench/plot.hpp"
#include "tests/bench/program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

namespace muster::bench {
namespace {

constexpr Nanos kProgramLimit = std::chrono::minutes(10);
constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

// 128 KiB and 2 MiB: 8 ranks hold as much each as 4 of half of it do.
const std::vector<std::size_t> kSizes = {8,        kKiB,      64 * kKiB, 128 * kKiB, kMiB,
                                         2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
const std::vector<std::size_t> kQuickSizes = {8, 4 * kKiB};
constexpr Effort kQuickEffort = {0.02, 5, 0.1, 2.0};

std::filesystem::path new_folder() {
  std::string pattern = std::filesystem::temp_directory_path() / "muster-bench-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    std::fprintf(stderr, "muster-bench: no folder can be made as %s\n", pattern.c_str());
    std::exit(EXIT_FAILURE);
  }
  return pattern;
}

bool is_alone(const std::string& operation) {
  return std::find(kAlone.begin(), kAlone.end(), operation) != kAlone.end();
}

// Operations whose result is a figure and not a time. Further rounds do not improve a figure.
bool is_figure(const std::string& operation) {
  return operation == "memory" || operation == "overlap" || operation == "overlap_free";
}

}  // namespace

Campaign::Campaign(Choice choice) : choice_(std::move(choice)), machine_(describe_machine()) {
  if (choice_.quick) choice_.rounds = 1;
  if (choice_.sizes.empty()) choice_.sizes = choice_.quick ? kQuickSizes : kSizes;
  std::sort(choice_.sizes.begin(), choice_.sizes.end());
  places_.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  places_.peers = places_.programs.parent_path() / "bench" / "peers";
  places_.run = new_folder();
  places_.cores = machine_.at("cores").get<int>();
}

Campaign::~Campaign() {
  std::error_code ignored;
  std::filesystem::remove_all(places_.run, ignored);
}

Status Campaign::run() {
  std::vector<std::string> there;
  for (const std::string& contender : choice_.contenders) {
    const std::string missing = what_is_missing(contender, places_);
    if (missing.empty()) {
      there.push_back(contender);
    } else {
      std::fprintf(stderr, "muster-bench: %s\n", missing.c_str());
      report_.leave_out(missing);
    }
  }
  for (const std::string& contender : there)
    if (contender == "muster" && !wanted(true).empty())
      muster_ = run_one({contender, "engine"}, 1, wanted(true));
  // The host moves cores apart and together while this goes on: contenders take turns, so that each has its
  // share of good and bad times.
  for (const int ranks : choice_.ranks)
    for (int round = 0; round < choice_.rounds; ++round)
      for (const std::string& contender : there) run_all(contender, ranks, round);
  const bool cut = told_to_end();  // what was measured until then is not lost
  if (cut) report_.leave_out("the rest and the floor, because a signal ended the run");
  if (!cut) measure_floor();
  print();
  if (!choice_.json.empty()) MUSTER_RETURN_IF_ERROR(report_.write(choice_.json, machine_));
  if (!choice_.plots.empty() && !cut) MUSTER_RETURN_IF_ERROR(write_plots(report_, choice_.plots));
  return cut ? failure(Code::kAborted, "ended by a signal, before all was measured") : muster_;
}

void Campaign::run_all(const std::string& contender, int ranks, int round) {
  std::vector<std::string> operations = wanted(false);
  if (round > 0) std::erase_if(operations, [](const std::string& name) { return is_figure(name); });
  if (operations.empty()) return;
  for (const Way& way : ways_of(contender)) {
    if (told_to_end()) return;
    note_line();
    const Status status = run_one(way, ranks, operations);
    if (contender == "muster" && muster_.ok()) muster_ = status;
  }
}

// Rows that came before a failure count.
Status Campaign::run_one(const Way& way, int ranks, const std::vector<std::string>& operations) {
  std::fprintf(stderr, "muster-bench: %s over %s, ranks: %d\n", way.contender.c_str(), way.path.c_str(),
               ranks);
  std::vector<std::string> arguments = command_of(way, ranks, places_);
  for (std::string& word : to_arguments(cells(way.path, operations))) arguments.push_back(std::move(word));
  const SteadyClock clock;
  const Instant start = clock.now();
  const Output output = output_of(arguments, kProgramLimit);
  std::fprintf(stderr, "  %.1f s\n", std::chrono::duration<double>(clock.now() - start).count());
  Status status = report_.take(output.text);
  if (!output.status.ok()) status = output.status;
  if (!status.ok()) {
    const std::string what = fmt::format("{} over {}, ranks: {}: the rest, because {}", way.contender,
                                         way.path, ranks, status.message());
    std::fprintf(stderr, "muster-bench: left out: %s\n", what.c_str());
    report_.leave_out(what);
  }
  return status;
}

Cells Campaign::cells(const std::string& path, const std::vector<std::string>& operations) const {
  return {path, operations, choice_.sizes, choice_.quick ? kQuickEffort : Effort{}, getpid()};
}

// The chosen operations for one rank of Muster alone, or for all ranks of all contenders.
std::vector<std::string> Campaign::wanted(bool alone) const {
  std::vector<std::string> names;
  for (const std::string& name : choice_.operations)
    if (is_alone(name) == alone) names.push_back(name);
  return names;
}

void Campaign::note_line() {
  if (!choice_.quick) lines_us_.push_back(Meeting().line_seconds() * 1e6);
}

void Campaign::measure_floor() {
  std::fprintf(stderr, "muster-bench: the floor\n");
  MemoryFloor floor;
  for (const Cell& cell : report_.cells())
    if (const auto operation = operation_named(cell.operation))
      report_.set_floor(cell, floor.microseconds(*operation, cell.bytes, cell.ranks));
  machine_["line_us"] = floor.meeting().line_seconds() * 1e6;
  if (!lines_us_.empty()) machine_["lines_us"] = lines_us_;
  machine_["wake_us"] = floor.meeting().wake_seconds() * 1e6;
  for (const int ranks : choice_.ranks)
    machine_["meeting_us"][std::to_string(ranks)] = floor.meeting().seconds(ranks) * 1e6;
}

void Campaign::print() const {
  std::printf("%s, cores: %d, load at the start: %.1f\n", machine_["cpu"].get<std::string>().c_str(),
              machine_["cores"].get<int>(), machine_["load_average"].get<double>());
  if (machine_.contains("line_us"))
    std::printf("a line of the cache from core to core %s µs, a sleeper woken %s µs",
                figure_text(machine_["line_us"].get<double>()).c_str(),
                figure_text(machine_["wake_us"].get<double>()).c_str());
  if (!lines_us_.empty()) {
    const auto [least, most] = std::minmax_element(lines_us_.begin(), lines_us_.end());
    std::printf(" (before the programs %s to %s µs)", figure_text(*least).c_str(),
                figure_text(*most).c_str());
  }
  const nlohmann::json meetings = machine_.value("meeting_us", nlohmann::json::object());
  for (const auto& [ranks, microseconds] : meetings.items())
    std::printf(", %s ranks meet %s µs", ranks.c_str(), figure_text(microseconds.get<double>()).c_str());
  std::printf("\n\n%s%s", report_.text().c_str(), contract_text(report_).c_str());
  std::fflush(stdout);
}

}  // namespace muster::bench
