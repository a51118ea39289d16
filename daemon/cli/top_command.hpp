// muster top: shows what the ranks and groups of a job do now. It reads counters in shared memory, so it
// works while the engine is stuck.
#pragma once

#include "api/shm/job_counters.hpp"
#include "daemon/cli/question.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct TopOptions {
  double seconds = 1;  // between two looks
  bool once = false;   // two looks, one table
};

// Runs until q or a signal, unless `once`.
int run_top(const DaemonAddress& address, const std::string& job, const TopOptions& options, Output output);

// One look at all counters. A group without members is a free row.
struct Look {
  Instant at{0};
  Instant beat{0};
  std::vector<std::array<std::uint64_t, shm::kTallyValuesMax>> ranks;
  std::vector<shm::GroupRow> groups;
};
Look look_at(const shm::JobCountersReader& counters, Instant now);

// Rates between two looks, by rank and by group. Pure.
Json rates(const shm::JobCountersReader& counters, const Look& before, const Look& after);
std::string top_text(const std::string& job, const Json& rates, std::size_t columns);

}  // namespace muster::cli
