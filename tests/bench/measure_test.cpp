#include "tests/bench/measure.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace muster::bench {
namespace {

// A rank that is alone: it meets nobody and agrees with itself.
class LoneRank final : public Contender {
 public:
  const char* name() const override { return "lone"; }
  std::string version() const override { return "1"; }
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void barrier() override { ++barriers; }
  double maximum(double mine) override { return mine; }
  Prepared prepare(const Shape&) override { return {}; }

  int barriers = 0;
};

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(Measure, RunsOnceWhatAloneExceedsTheLimit) {
  LoneRank rank;
  Measure measure(rank, {0.001, 9, 0.002, 1.0});
  int runs = 0;
  const Timing timing = measure.timing([&] {
    ++runs;
    sleep_ms(3);
  });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(timing.samples, 1);
  EXPECT_GE(timing.minimum_us, 3000.0);
}

TEST(Measure, RunsNotAgainWhatIsKnownToExceedTheLimit) {
  LoneRank rank;
  Measure measure(rank, {0.001, 9, 0.002, 1.0});
  int runs = 0;
  const Timing timing = measure.timing([&] { ++runs; }, 2, 3.0);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(timing.samples, 1);
  EXPECT_DOUBLE_EQ(timing.median_us, 1.5e6);
}

TEST(Measure, TakesAllSamplesOfWhatIsQuick) {
  LoneRank rank;
  Measure measure(rank, {0.001, 9, 60.0, 1.0});
  const Timing timing = measure.timing([] {});
  EXPECT_EQ(timing.samples, 9);
  EXPECT_LE(timing.minimum_us, timing.median_us);
}

TEST(Measure, SharesARunAmongTheOperationsInIt) {
  LoneRank rank;
  Measure measure(rank, {0.001, 1, 0.002, 1.0});
  EXPECT_LT(measure.timing([] { sleep_ms(3); }, 1000).minimum_us, 3000.0);
}

TEST(Measure, MeetsBeforeEachSample) {
  LoneRank rank;
  Measure measure(rank, {0.001, 3, 60.0, 1.0});
  rank.barriers = 0;
  measure.once([] {}, 5);
  EXPECT_EQ(rank.barriers, 1);
}

TEST(Measure, DoesWhatComesBeforeForEachFirstUse) {
  LoneRank rank;
  Measure measure(rank, {0.001, 4, 60.0, 1.0});
  int before = 0;
  int runs = 0;
  const Timing timing = measure.timing_of_first([&] { ++before; }, [&] { ++runs; });
  EXPECT_EQ(timing.samples, 4);
  EXPECT_EQ(before, 4);
  EXPECT_EQ(runs, 4);
}

TEST(Timing, HasTheMiddleAndTheLeast) {
  EXPECT_DOUBLE_EQ(timing_of({3e-6, 1e-6, 2e-6}).median_us, 2.0);
  EXPECT_DOUBLE_EQ(timing_of({4e-6, 1e-6, 2e-6, 3e-6}).median_us, 2.5);
  EXPECT_DOUBLE_EQ(timing_of({3e-6, 1e-6, 2e-6}).minimum_us, 1.0);
  EXPECT_EQ(timing_of({1e-6}).samples, 1);
}

TEST(Cells, AreTheSameAfterTheCommandLine) {
  const Cells cells{"direct", {"barrier", "halo"}, {8, 1048576}, {0.25, 7, 1.5, 3.0}, 4711};
  std::vector<std::string> words = to_arguments(cells);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const Cells read = cells_of(arguments);
  EXPECT_EQ(read.path, cells.path);
  EXPECT_EQ(read.operations, cells.operations);
  EXPECT_EQ(read.sizes, cells.sizes);
  EXPECT_DOUBLE_EQ(read.effort.seconds, cells.effort.seconds);
  EXPECT_EQ(read.effort.samples, cells.effort.samples);
  EXPECT_DOUBLE_EQ(read.effort.limit, cells.effort.limit);
  EXPECT_DOUBLE_EQ(read.effort.patience, cells.effort.patience);
  EXPECT_EQ(read.root_pid, cells.root_pid);
  EXPECT_TRUE(read.wants("halo"));
  EXPECT_FALSE(read.wants("hal"));
}

}  // namespace
}  // namespace muster::bench
