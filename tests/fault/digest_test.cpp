// Silent corruption, T-32: a rank whose results have a wrong bit from some run on is soon named by everybody.
#include "tests/fault/fault_job.hpp"
#include "tests/support/nodes.hpp"

#include <gmock/gmock.h>

namespace muster {
namespace {

using test::FaultRank;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kEvery = 16;

class Digests : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    node_.options.job_defaults.digests = kEvery;
    node_.start();
  }
  // A job of so many ranks, at `step` when this returns. `fault` is of the victim.
  std::vector<std::unique_ptr<FaultRank>> start(int world, int victim, const std::string& step,
                                                const std::string& fault) {
    const std::string name = fmt::format("job-{}-{}", world, ++jobs_);
    std::vector<std::unique_ptr<FaultRank>> ranks;
    for (int rank = 0; rank < world; ++rank) {
      const std::string endpoint = node_.rank(name.c_str(), rank, world).endpoint;
      ranks.push_back(std::make_unique<FaultRank>(endpoint, name, rank, world, victim,
                                                  std::vector<std::string>{step},
                                                  rank == victim ? fault : std::string()));
    }
    for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "attached");
    for (const auto& rank : ranks) rank->go();
    return ranks;
  }
  static void expect_well(std::vector<std::unique_ptr<FaultRank>>& ranks, int victim) {
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      FaultRank& one = *ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(test::ending_of(one.line()).how, rank == victim ? "left" : "parted");
      EXPECT_EQ(one.wait(), 0);
    }
  }

  test::Nodes node_;
  int jobs_ = 0;
};

// Goal:   whenever it begins, all ranks hear of it at the next sample, at the same run, and go on.
// Method: from run number `from` on, one bit of each of the victim's results is turned.
TEST_F(Digests, NameARankWhoseResultsAreWrong) {
  for (const int world : {2, 3})
    for (const int from : {1, 5, 16, 17}) {
      SCOPED_TRACE(fmt::format("{} ranks, from run {} on", world, from));
      const int victim = from % world;
      auto ranks = start(world, victim, "share:100", fmt::format("result.written:{}=flip", from));
      EXPECT_THAT(ranks[static_cast<std::size_t>(victim)]->line(), HasSubstr("at result.written"));
      const int found = (from + kEvery - 1) / kEvery * kEvery;
      std::string first;
      for (const auto& rank : ranks) {
        const std::string line = rank->line();
        EXPECT_THAT(line, AllOf(HasSubstr(fmt::format("corrupt {} ", found)),
                                HasSubstr("after all_reduce of f32: "), HasSubstr("of 4000 bytes")));
        if (world == 2)
          EXPECT_THAT(line, AllOf(HasSubstr("there is no majority"), HasSubstr("at rank 0; "),
                                  HasSubstr("at rank 1")));
        else
          EXPECT_THAT(line, AllOf(HasSubstr(fmt::format("rank {} holds other bytes", victim)),
                                  Not(HasSubstr("no majority"))));
        if (first.empty()) first = line;
        EXPECT_EQ(line, first) << "everybody finds the same";
      }
      expect_well(ranks, victim);
    }
}

TEST_F(Digests, RaiseNoFalseAlarm) {
  auto ranks = start(2, 0, node_.several() ? "mixed:2000" : "mixed:100000", {});
  expect_well(ranks, 0);
}

}  // namespace
}  // namespace muster
