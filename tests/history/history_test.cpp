// Random histories of failures on both paths at once, one turn at a time (history.hpp): as many as
// MUSTER_PROPERTY_CASES says. MUSTER_HISTORY_SEED=N runs that one, and those before it in the same job; with
// MUSTER_HISTORY_STORY=FILE it is written down there.
#include "tests/history/jobs.hpp"

#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

namespace muster::test {
namespace {

TEST(Histories, EndWellWithinTheRule) {
  const char* const only = std::getenv("MUSTER_HISTORY_SEED");
  const std::uint64_t last = only != nullptr ? std::stoull(only) : property_cases(2000);
  std::uint64_t first = only != nullptr ? (last - 1) / kHistoriesOfAJob * kHistoriesOfAJob + 1 : 1;
  const std::uint64_t begun = first;
  Happened happened;
  for (; first <= last; first += kHistoriesOfAJob) {
    const std::string wrong = run_job(first, std::min(last, first + kHistoriesOfAJob - 1), &happened);
    EXPECT_EQ(wrong, "");
    if (!wrong.empty()) break;
  }
  const char* const story = std::getenv("MUSTER_HISTORY_STORY");
  if (only != nullptr && story != nullptr) tell_job(begun, last, story);
  for (const auto& [name, count] : happened)
    std::printf("%s %llu  ", name.c_str(), static_cast<unsigned long long>(count));
  std::printf("\n");
  if (only != nullptr || HasFailure()) return;
  for (const char* each : {"kill", "leave", "stop", "abort", "mismatch", "interrupt", "late reset"})
    EXPECT_GT(happened[each], last / 20) << each;
  for (const char* each :
       {"MUSTER_ERR_PEER_LOST", "MUSTER_ERR_ABORTED", "MUSTER_ERR_TIMEOUT", "MUSTER_ERR_MISMATCH",
        "MUSTER_ERR_DEPENDENCY", "MUSTER_ERR_INTERRUPTED", "shrunk", "renewed"})
    EXPECT_GT(happened[each], last / 100) << each;
}

}  // namespace
}  // namespace muster::test
