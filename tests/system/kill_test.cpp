// kill -9 of a rank in mid-step, many times over, on a job that stays warm.
#include "tests/support/holdings.hpp"
#include "tests/support/node.hpp"
#include "tests/support/piped_process.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

using test::PipedProcess;
using ::testing::HasSubstr;
using Steady = std::chrono::steady_clock;

#if defined(MUSTER_SANITIZED)
constexpr int kCycles = 10;
#else
constexpr int kCycles = 100;
#endif
constexpr int kWorld = 4;

// The work of the ranks: they "start" or "run" all-reduces of `count` elements.
struct Work {
  const char* verb;
  std::uint64_t count;
};

std::vector<std::unique_ptr<PipedProcess>> start(const test::Node& node, const char* job, int world,
                                                 const Work& work) {
  std::vector<std::unique_ptr<PipedProcess>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_unique<PipedProcess>(
        MUSTER_RANK_PROGRAM,
        std::vector<std::string>{"reducing_rank", node.endpoint(), job, std::to_string(rank),
                                 std::to_string(world), work.verb, std::to_string(work.count)}));
  for (auto& rank : ranks) EXPECT_EQ(rank->line(), "ready");
  return ranks;
}

class Kill : public ::testing::TestWithParam<Work> {};

INSTANTIATE_TEST_SUITE_P(Paths, Kill,
                         ::testing::Values(Work{"start", 4096}, Work{"run", 2}, Work{"run", 300'000}),
                         [](const auto& of) { return fmt::format("{}{}", of.param.verb, of.param.count); });

TEST_P(Kill, TellsTheSurvivorsLeaksNothingAndLeavesOtherJobsAlone) {
  const Work work = GetParam();
  test::Node node;
  node.start();
  const auto bystanders = start(node, "bystander", 2, work);
  std::mt19937_64 random(99);
  std::vector<Steady::duration> verdicts;
  std::vector<Steady::duration> attaches;
  std::vector<std::pair<pid_t, test::Holdings>> baseline;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    SCOPED_TRACE(::testing::Message() << "cycle " << cycle);
    const auto opening = Steady::now();
    auto ranks = start(node, "victim", kWorld, work);
    attaches.push_back(Steady::now() - opening);
    usleep(static_cast<useconds_t>(random() % 3000));
    const std::size_t dead = random() % kWorld;
    const auto killed = Steady::now();
    ranks[dead]->kill(SIGKILL);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      if (rank == dead) continue;
      EXPECT_THAT(ranks[rank]->line(),
                  HasSubstr(fmt::format("rank {} (pid {}) died", dead, ranks[dead]->pid())));
      EXPECT_EQ(ranks[rank]->wait(), 42);
    }
    verdicts.push_back(Steady::now() - killed);
    if (cycle == kCycles / 4)
      for (const pid_t engine : test::engines()) baseline.emplace_back(engine, test::holdings_of(engine));
  }
  // The engine frees a session's resources once its last step has run, at its next timer.
  usleep(300'000);
  ASSERT_EQ(baseline.size(), 2u);
  for (const auto& [engine, before] : baseline) {
    const test::Holdings after = test::holdings_of(engine);
    EXPECT_LE(after.descriptors, before.descriptors) << "descriptors of engine " << engine;
    EXPECT_LE(after.mappings, before.mappings) << "mappings of engine " << engine;
  }
  for (const auto& bystander : bystanders) bystander->kill(SIGTERM);
  // One of them may leave while the other waits for it.
  std::array codes{bystanders[0]->wait(), bystanders[1]->wait()};
  EXPECT_TRUE(std::count(codes.begin(), codes.end(), 0) >= 1) << codes[0] << " " << codes[1];
  for (const int code : codes) EXPECT_TRUE(code == 0 || code == 42) << code;

  const auto report = [](const char* what, std::vector<Steady::duration>& times) {
    std::sort(times.begin(), times.end());
    const auto ms = [](Steady::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    std::printf("%s: median %.1f ms, p99 %.1f ms, max %.1f ms over %zu\n", what, ms(times[times.size() / 2]),
                ms(times[times.size() * 99 / 100]), ms(times.back()), times.size());
  };
  report("kill to the last survivor's exit", verdicts);
  report("start of 4 processes to all attached to the warm job", attaches);
}

}  // namespace
}  // namespace muster
