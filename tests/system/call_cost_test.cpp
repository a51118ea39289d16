// The cost of a call to its process, in instructions. A busy machine does not change this figure.
#include "tests/daemon/cli/program.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace muster::test {
namespace {

// The instructions of one call, as callgrind says in the line "summary: N" or "totals: N" of a file.
std::uint64_t counted_in(const std::filesystem::path& file) {
  std::ifstream lines(file);
  std::uint64_t counted = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("totals: ") || line.starts_with("summary: "))
      counted = std::stoull(line.substr(line.find(' ')));
  return counted;
}

// The least of many calls: a call for which all peers had already come, so it did not poll.
std::uint64_t least_of_run(const std::string& what, int ranks) {
  const Folder folder;
  const Ran ran = muster({"run", "--private", "-n", std::to_string(ranks), "--", MUSTER_RANK_PROGRAM, what,
                          folder.path() + "/calls"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  std::uint64_t least = UINT64_MAX;
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    if (const std::uint64_t counted = counted_in(file.path()); counted > 0) least = std::min(least, counted);
  return least;
}

// The least of at most five runs: beside other work, a run may have no call to which all peers come in time.
std::uint64_t least_of_runs(const std::string& what, int ranks, std::uint64_t enough) {
  std::uint64_t least = UINT64_MAX;
  for (int run = 0; run < 5 && least > enough; ++run) least = std::min(least, least_of_run(what, ranks));
  return least;
}

struct Bound {
  const char* what;
  int ranks;
  std::uint64_t instructions;
};

class CallCost : public testing::TestWithParam<Bound> {};

// Goal:   the client's part of an operation stays as short as it is.
TEST_P(CallCost, StaysWithinItsInstructions) {
  const std::uint64_t least = least_of_runs(GetParam().what, GetParam().ranks, GetParam().instructions);
  RecordProperty("instructions", std::to_string(least));
  std::printf("%s of %d ranks: %lu instructions\n", GetParam().what, GetParam().ranks,
              static_cast<unsigned long>(least));
  EXPECT_GT(least, 50u) << "nothing was counted";
  EXPECT_LE(least, GetParam().instructions);
}

// The instructions of the engine's turns for one start, of a rank with so many lanes.
double of_a_turn(int lanes) {
  const Folder folder;
  const std::string file = folder.path() + "/calls";
  const Ran ran = run({{MUSTER_TURN_PROGRAM, std::to_string(lanes), file}, {}, {}});
  EXPECT_EQ(ran.code, 0) << ran.err;
  return static_cast<double>(counted_in(file)) / std::max(1, std::atoi(ran.out.c_str()));
}

// Goal:   lanes that a rank does not use cost its starts nothing.
TEST(TurnCost, IsTheSameWithSixtyFourLanes) {
  const double few = of_a_turn(7);
  const double many = of_a_turn(64);
  std::printf("a start in the engine: %.0f instructions with 7 lanes, %.0f with 64\n", few, many);
  EXPECT_GT(few, 100) << "nothing was counted";
  EXPECT_LE(many, 1.1 * few);
}

// A start takes 144 instructions, and with offsets 240. Both take 7 more for the call of the doorbell if the
// engine sleeps.
constexpr Bound kBounds[] = {
    {"barrier", 2, 460}, {"barrier", 4, 560},          {"all_reduce", 2, 550},         {"all_reduce", 4, 650},
    {"start", 2, 155},   {"start_on_lane_63", 2, 155}, {"start_with_offsets", 2, 255},
};
INSTANTIATE_TEST_SUITE_P(Calls, CallCost, testing::ValuesIn(kBounds), [](const auto& bound) {
  return std::string(bound.param.what) + "_of_" + std::to_string(bound.param.ranks);
});

}  // namespace
}  // namespace muster::test
