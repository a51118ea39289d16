// The conformance suite on a factory whose steps end late, and what the seam says of one that fails them.
#include "tests/transport/faulty_factory.hpp"

#include "tests/support/fault_seeds.hpp"
#include "tests/transport/host_bench.hpp"
#include "transport/loopback/loopback.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

using Ends = FaultyFactory::Ends;

const SteadyClock kClock;
constexpr std::uint64_t kUsualCases = 2000;

std::unique_ptr<Bench> faulty(std::uint64_t seed, FaultRates rates, Ends ends) {
  return std::make_unique<HostBench>(
      std::make_unique<FaultyFactory>(loopback_factory(), drawn_faults(seed, rates), kClock, ends),
      kUsualCases);
}

std::vector<BenchFactory> by_a_thread() {
  std::vector<BenchFactory> all;
  for (const std::uint64_t seed : muster::test::fault_seeds(2))
    all.push_back({fmt::format("EndedByAThread{}", seed),
                   [seed] { return faulty(seed, {.delayed = 20}, Ends::kOnItsThread); }});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Faulty, CommunicatorConformance, ::testing::ValuesIn(by_a_thread()), bench_name);
INSTANTIATE_TEST_SUITE_P(Faulty, CommunicatorRefusals, ::testing::ValuesIn(by_a_thread()), bench_name);

// Goal:   steps that the workers end in progress() hold and release their outcome as those of a thread do.
TEST(FaultyFactory, EndsDelayedStepsInProgress) {
  const auto bench = faulty(1, {.at_launch = 0, .late = 0, .delayed = 50, .lost = 0}, Ends::kInProgress);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Shape shape = random_shape(seed);
    const Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const std::vector<Share> shares = *shares_of(shape.collective, shape.ranks, made.members, arena.data());
    ASSERT_TRUE(bench->launch(shape.collective, shape.ranks, pointers_to(shares)).ok());
    ASSERT_TRUE(bench->finish().ok());
    ASSERT_TRUE(arena == made.after) << shape.text();
  }
}

// Goal:   a step that fails late says so when its stream has ended it, and no other step does.
// Method: random cases in flight together; the seed says which of them fail, and how.
TEST(FaultyFactory, FailsTheStepsThatItsSeedNames) {
  constexpr std::uint64_t kCases = 400;
  constexpr FaultRates kRates{.at_launch = 20, .late = 20, .delayed = 20};
  const auto bench = faulty(7, kRates, Ends::kOnItsThread);
  std::uint64_t refused = 0;
  std::uint64_t late = 0;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const Shape shape = random_shape(seed);
    const Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const std::vector<Share> shares = *shares_of(shape.collective, shape.ranks, made.members, arena.data());
    const Status launched = bench->launch(shape.collective, shape.ranks, pointers_to(shares));
    if (!launched.ok()) {
      ++refused;
      ASSERT_EQ(launched.message(), "no memory for the send");
      ASSERT_TRUE(arena == made.before) << "a refused launch wrote something: " << shape.text();
      continue;
    }
    const Status ended = bench->finish();
    if (!ended.ok()) {
      ++late;
      ASSERT_EQ(ended.message(), "the link to node 3 broke");
      continue;
    }
    ASSERT_TRUE(arena == made.after) << shape.text();
  }
  EXPECT_GT(refused, kCases / 10);
  EXPECT_GT(late, kCases / 10);
  EXPECT_LT(refused + late, kCases / 2);
}

// Goal:   if several threads fail a step, the status of one of them is reported, whole.
TEST(StepOutcome, KeepsTheFirstFailure) {
  constexpr int kThreads = 4;
  StepOutcome outcome;
  for (int round = 0; round < 50; ++round) {
    outcome.renew();
    ASSERT_EQ(outcome.failure(), nullptr);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back(
          [&, i] { outcome.fail(failure(Code::kPeerLost, "{}", std::string(40, char('a' + i)))); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_NE(outcome.failure(), nullptr);
    const std::string& said = outcome.failure()->message();
    ASSERT_EQ(said, std::string(40, said.front()));
    outcome.fail(Status(Code::kAborted, "later"));
    ASSERT_EQ(outcome.failure()->message(), said);
  }
}

}  // namespace
}  // namespace muster::transport::test
