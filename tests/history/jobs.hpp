// Histories of one job after another, as the tests run them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace muster::test {

inline constexpr std::uint64_t kHistoriesOfAJob = 10;

// By name, what has happened how often.
using Happened = std::map<std::string, std::uint64_t>;

// The histories first..last in one job, from its first client to its last. The first that goes wrong, and
// how; empty: none.
std::string run_job(std::uint64_t first, std::uint64_t last, Happened* happened);

// The same, and writes down what happens in the last of them.
void tell_job(std::uint64_t first, std::uint64_t last, const char* path);

}  // namespace muster::test
