#include "tests/bench/contract.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kKiB = 1024;

void add(Report& report, const char* peer, const char* operation, std::size_t bytes, int ranks, double us) {
  const char* const path = std::string(peer) == "muster" ? "direct" : "vader";
  report.add({operation, bytes, ranks, path, peer, us, us, 9});
}

Promise promise(const Report& report, const std::string& what, const std::string& bound) {
  for (const Promise& p : promises_of(report))
    if (p.what == what && p.bound == bound) return p;
  ADD_FAILURE() << what << " " << bound;
  return {};
}

TEST(Contract, CountsTheCellsThatKeepABound) {
  Report report;
  add(report, "muster", "all_reduce", 8, 2, 1.0);
  add(report, "openmpi", "all_reduce", 8, 2, 2.0);
  add(report, "muster", "barrier", 0, 2, 1.0);
  add(report, "openmpi", "barrier", 0, 2, 1.5);
  add(report, "muster", "broadcast", 8, 2, 1.0);  // not promised
  add(report, "openmpi", "broadcast", 8, 2, 0.1);
  add(report, "muster", "all_reduce", 64 * kKiB, 2, 1.0);
  add(report, "openmpi", "all_reduce", 64 * kKiB, 2, 1.0);
  const Promise small = promise(report, "<= 1 KiB, 2 ranks", ">= 2 x peer");
  EXPECT_EQ(small.cells, 2u);
  EXPECT_EQ(small.kept, 1u);
  EXPECT_EQ(small.worst, 1.5);
  EXPECT_EQ(small.best, 2.0);
  EXPECT_EQ(small.worst_cell, "barrier, 2 ranks");
  EXPECT_EQ(promise(report, "reducing, >= 64 KiB", ">= 4 x peer").kept, 0u);
}

TEST(Contract, HoldsLongVectorsAgainstTheFloor) {
  Report report;
  add(report, "muster", "reduce_scatter", 64 * kKiB, 4, 10.0);
  report.set_floor({"reduce_scatter", 64 * kKiB, 4}, 8.0);
  add(report, "muster", "all_gather", 64 * kKiB, 4, 10.0);
  report.set_floor({"all_gather", 64 * kKiB, 4}, 5.0);
  EXPECT_EQ(promise(report, "reducing, >= 64 KiB", ">= 70 % of floor").kept, 1u);
  EXPECT_EQ(promise(report, "all_gather, >= 64 KiB", ">= 70 % of floor").kept, 0u);
}

// Goal:   a vector that is cut is twice as long for 8 ranks as for 4; one that each rank holds is not.
TEST(Contract, ComparesRanksAtEqualBytesEach) {
  Report report;
  add(report, "muster", "all_gather", 64 * kKiB, 4, 1.0);
  add(report, "muster", "all_gather", 64 * kKiB, 8,
      100.0);  // half as much each: no cell of 4 ranks is like it
  add(report, "muster", "all_gather", 128 * kKiB, 8, 2.0);
  add(report, "muster", "all_reduce", 64 * kKiB, 4, 1.0);
  add(report, "muster", "all_reduce", 64 * kKiB, 8, 3.0);
  const Promise eight = promise(report, "8 ranks, same bytes each", "<= 2.5 x 4 ranks");
  EXPECT_EQ(eight.cells, 2u);
  EXPECT_EQ(eight.kept, 1u);
  EXPECT_EQ(eight.worst, 3.0);
  EXPECT_EQ(eight.worst_cell, "all_reduce 64 KiB, 8 ranks");
}

TEST(Contract, WantsSharedShardsInTheTimeOfABarrier) {
  Report report;
  add(report, "muster", "barrier", 0, 2, 1.0);
  add(report, "muster", "all_gather_shared", 64 * kKiB, 2, 1.2);
  add(report, "muster", "all_gather_shared", 128 * kKiB, 2, 1.3);
  const Promise shared = promise(report, "all_gather_shared", "<= 1.25 x barrier");
  EXPECT_EQ(shared.cells, 2u);
  EXPECT_EQ(shared.kept, 1u);
}

TEST(Contract, TakesFiguresThatAreNoTimes) {
  Report report;
  ASSERT_TRUE(
      report
          .take(
              R"({"figure":"overlap_free","ranks":2,"path":"engine","peer":"muster","value":94.0,"unit":"%"})"
              "\n"
              R"({"figure":"overlap_free","ranks":2,"path":"vader","peer":"openmpi","value":9.0,"unit":"%"})")
          .ok());
  const Promise overlap = promise(report, "overlap, a core free", ">= 95 %");
  EXPECT_EQ(overlap.cells, 1u);
  EXPECT_EQ(overlap.kept, 0u);
  EXPECT_THAT(contract_text(report), HasSubstr("overlap, a core free"));
  EXPECT_THAT(contract_text(report), Not(HasSubstr("attach")));  // of what was not measured nothing is said
  EXPECT_EQ(contract_text(Report()), "");
}

}  // namespace
}  // namespace muster::bench
