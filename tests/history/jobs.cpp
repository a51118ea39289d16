#include "tests/history/jobs.hpp"

#include "tests/history/history.hpp"

#include <cstdio>

namespace muster::test {
namespace {

void add(const History& history, Happened* happened) {
  constexpr const char* kTroubles[] = {"kill",     "leave",     "stop",      "abort",
                                       "mismatch", "interrupt", "late reset"};
  for (std::size_t i = 0; i < history.troubles.size(); ++i) (*happened)[kTroubles[i]] += history.troubles[i];
  for (const auto& [status, count] : history.heard) (*happened)[muster_status_name(status)] += count;
  (*happened)["met"] += history.met;
  (*happened)["shrunk"] += history.shrunk;
  (*happened)["renewed"] += history.renewed;
}

std::string replay_job(std::uint64_t first, std::uint64_t last, std::FILE* story, Happened* happened) {
  Turns turns(first);
  JobByHand job(kHistoryRanks, kHistoryMesh, kHistoryDeadline, turns.clock);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    History history(job, turns, seed);
    const std::string wrong = history.run(seed == last ? story : nullptr);
    if (!wrong.empty()) return "MUSTER_HISTORY_SEED=" + std::to_string(seed) + ": " + wrong;
    add(history, happened);
  }
  return {};
}

}  // namespace

std::string run_job(std::uint64_t first, std::uint64_t last, Happened* happened) {
  return replay_job(first, last, nullptr, happened);
}

void tell_job(std::uint64_t first, std::uint64_t last, const char* path) {
  std::FILE* const story = std::fopen(path, "w");
  Happened happened;
  replay_job(first, last, story, &happened);
  std::fclose(story);
}

}  // namespace muster::test
