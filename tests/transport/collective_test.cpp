#include "transport/collective/communicator.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace muster::transport {
namespace {

Collective collective(muster_op op, std::uint64_t count) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_F32;
  c.count = count;
  if (op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER) c.redop = MUSTER_SUM;
  if (op == MUSTER_SEND || op == MUSTER_RECV) c.receiver = 1;
  return c;
}

void expect_refused(const Collective& c, std::int32_t ranks, const std::string& word) {
  const Status status = validate(c, ranks);
  EXPECT_EQ(status.code(), Code::kBadArgument) << word;
  EXPECT_NE(status.message().find(word), std::string::npos)
      << "'" << status.message() << "' should name " << word;
}

TEST(Collective, EvenBlocksLieEndToEnd) {
  const Collective c = collective(MUSTER_ALL_GATHER, 10);
  EXPECT_EQ(block_of(c, 0, 4).offset, 0u);
  EXPECT_EQ(block_of(c, 3, 4).offset, 30u);
  EXPECT_EQ(block_of(c, 3, 4).count, 10u);
  EXPECT_EQ(total_count(c, 4), 40u);
}

TEST(Collective, UnevenBlocksAreAtThePrefixSumsOfCounts) {
  Collective c = collective(MUSTER_REDUCE_SCATTER, 99);
  c.counts = {3, 0, 5};
  EXPECT_EQ(block_of(c, 0, 3).offset, 0u);
  EXPECT_EQ(block_of(c, 1, 3).offset, 3u);
  EXPECT_EQ(block_of(c, 1, 3).count, 0u);
  EXPECT_EQ(block_of(c, 2, 3).offset, 3u);
  EXPECT_EQ(block_of(c, 2, 3).count, 5u);
  EXPECT_EQ(total_count(c, 3), 8u) << "count means nothing beside counts";
}

// Goal:   each operation's sides have the lengths that muster.h gives them.
TEST(Collective, SidesHaveTheLengthsOfTheContract) {
  struct Row {
    muster_op op;
    std::uint64_t total, source_of_1, target_of_1, source_of_0, target_of_0;
  };
  constexpr Row kRows[] = {{MUSTER_ALL_REDUCE, 6, 6, 6, 6, 6},
                           {MUSTER_ALL_GATHER, 18, 6, 18, 6, 18},
                           {MUSTER_REDUCE_SCATTER, 18, 18, 6, 18, 6},
                           {MUSTER_BROADCAST, 6, 0, 6, 6, 6},
                           {MUSTER_BARRIER, 0, 0, 0, 0, 0},
                           {MUSTER_SEND, 6, 0, 6, 6, 0},
                           {MUSTER_RECV, 6, 0, 6, 6, 0}};
  for (const Row& row : kRows) {
    const Collective c = collective(row.op, 6);
    EXPECT_EQ(total_count(c, 3), row.total) << row.op;
    EXPECT_EQ(source_count(c, 1, 3), row.source_of_1) << row.op;
    EXPECT_EQ(target_count(c, 1, 3), row.target_of_1) << row.op;
    EXPECT_EQ(source_count(c, 0, 3), row.source_of_0) << row.op;
    EXPECT_EQ(target_count(c, 0, 3), row.target_of_0) << row.op;
    EXPECT_EQ(source_count(c, 2, 3),
              row.op == MUSTER_BROADCAST || row.op >= MUSTER_SEND ? 0 : row.source_of_1);
  }
}

TEST(Collective, AcceptsEveryOperationAndNothingToDo) {
  for (muster_op op = MUSTER_ALL_REDUCE; op <= MUSTER_RECV; ++op)
    for (const std::uint64_t count : {0, 5}) EXPECT_TRUE(validate(collective(op, count), 3).ok()) << op;
  Collective barrier;
  barrier.op = MUSTER_BARRIER;
  EXPECT_TRUE(validate(barrier, 1).ok()) << "a barrier needs no dtype";
  Collective empty = collective(MUSTER_ALL_GATHER, 0);
  empty.counts = {0, 0, 0};
  EXPECT_TRUE(validate(empty, 3).ok());
}

TEST(Collective, NamesTheFieldThatIsWrong) {
  expect_refused(collective(0, 1), 2, "op 0");
  expect_refused(collective(8, 1), 2, "op 8");
  expect_refused(collective(MUSTER_ALL_REDUCE, 1), 0, "0 ranks");

  Collective c = collective(MUSTER_ALL_REDUCE, 1);
  c.dtype = 12;
  expect_refused(c, 2, "dtype 12");

  c = collective(MUSTER_ALL_REDUCE, 1);
  c.redop = 0;
  expect_refused(c, 2, "redop 0");
  c.redop = 7;
  expect_refused(c, 2, "redop 7");
  c = collective(MUSTER_ALL_GATHER, 1);
  c.redop = MUSTER_SUM;
  expect_refused(c, 2, "redop 1");
}

TEST(Collective, ChecksWhoSendsAndWhoReceives) {
  Collective c = collective(MUSTER_BROADCAST, 1);
  c.root = 2;
  expect_refused(c, 2, "root 2");
  c.root = -1;
  expect_refused(c, 2, "root -1");
  c = collective(MUSTER_ALL_REDUCE, 1);
  c.root = 1;
  expect_refused(c, 2, "root 1");
  c = collective(MUSTER_SEND, 1);
  c.receiver = 5;
  expect_refused(c, 2, "receiver 5");
  c.receiver = 0;
  expect_refused(c, 2, "itself");
}

TEST(Collective, ChecksCountsAndTheirSum) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  Collective c = collective(MUSTER_ALL_GATHER, 1);
  c.counts = {1, 2};
  expect_refused(c, 3, "2 entries");
  c = collective(MUSTER_BROADCAST, 1);
  c.counts = {1, 2, 3};
  expect_refused(c, 3, "3 entries");
  expect_refused(collective(MUSTER_ALL_GATHER, kHuge / 2), 3, "2^63");
  expect_refused(collective(MUSTER_ALL_REDUCE, kHuge / 4), 3, "2^63");
  EXPECT_TRUE(validate(collective(MUSTER_ALL_REDUCE, kHuge / 8), 3).ok()) << "just below 2^63 bytes";
  c = collective(MUSTER_REDUCE_SCATTER, 1);
  c.counts = {kHuge, 2};
  expect_refused(c, 2, "2^63");
}

TEST(Collective, ScalesIntegersByWholeNumbersOnly) {
  Collective c = collective(MUSTER_ALL_REDUCE, 1);
  c.redop = MUSTER_PREMUL_SUM;
  c.scale = 0.5;
  EXPECT_TRUE(validate(c, 2).ok()) << "floats take any scale";
  c.dtype = MUSTER_I32;
  expect_refused(c, 2, "scale 0.5");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), std::ldexp(1.0, 63)}) {
    c.scale = bad;
    expect_refused(c, 2, "scale");
  }
  for (const double good : {0.0, -3.0, 1e15}) {
    c.scale = good;
    EXPECT_TRUE(validate(c, 2).ok()) << good;
  }
}

}  // namespace
}  // namespace muster::transport
