#include "api/base/collective.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

Collective collective(muster_op op, std::uint64_t count) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_F32;
  c.count = count;
  if (is_pairwise(op)) c.count = 0;
  if (has_reduction(op)) c.redop = MUSTER_SUM;
  if (is_transfer(op)) c.receiver = 1;
  return c;
}

void expect_refused(const Collective& c, std::int32_t ranks, const std::string& word) {
  const Status status = validate(c, ranks);
  EXPECT_EQ(status.code(), Code::kBadArgument) << word;
  EXPECT_NE(status.message().find(word), std::string::npos)
      << "'" << status.message() << "' should name " << word;
}

TEST(Collective, AcceptsEveryOperationAndNothingToDo) {
  for (muster_op op = MUSTER_ALL_REDUCE; op <= MUSTER_EXCHANGE; ++op)
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
  expect_refused(collective(13, 1), 2, "op 13");
  expect_refused(collective(MUSTER_ALL_REDUCE, 1), 0, "0 ranks");

  Collective c = collective(MUSTER_ALL_REDUCE, 1);
  c.dtype = 99;
  expect_refused(c, 2, "dtype 99");

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
}  // namespace muster
