#include "api/base/collective/collective.hpp"

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
  for (muster_op op = 1; op <= kOperations; ++op)
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
  expect_refused(c, 2, "peer 2");
  c.root = -1;
  expect_refused(c, 2, "peer -1");
  c = collective(MUSTER_ALL_REDUCE, 1);
  c.root = 1;
  expect_refused(c, 2, "peer 1");
  c = collective(MUSTER_SEND, 1);
  c.receiver = 5;
  expect_refused(c, 2, "peer 5");
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

TEST(Collective, AgreesOnCountsOnlyWhereAllDo) {
  Collective c = collective(MUSTER_ALL_TO_ALL, 0);
  c.count = 5;
  expect_refused(c, 2, "count 5");
  c.count = 0;
  c.counts = {1, 2};
  expect_refused(c, 2, "counts has 2 entries");
}

muster_collective said(muster_op op, std::int32_t peer) {
  muster_collective s = MUSTER_COLLECTIVE_INIT;
  s.op = op;
  s.dtype = MUSTER_F32;
  s.redop = has_reduction(op) ? MUSTER_SUM : 0;
  s.peer = peer;
  return s;
}

// Goal:   fields that an operation does not use are dropped, so that they cannot differ between ranks.
TEST(Collective, DropsWhatTheOperationDoesNotUse) {
  muster_collective s = said(MUSTER_ALL_REDUCE, 7);
  s.scale = 3.0;
  const Collective sum = *make_collective(s, 0, 2, {.count = 9});
  EXPECT_EQ(sum.root, 0);
  EXPECT_EQ(sum.scale, 1.0);
  EXPECT_EQ(sum.count, 9u);
  s = said(MUSTER_BARRIER, 7);
  s.redop = 3;
  const Collective barrier = *make_collective(s, 0, 2, {.count = 9});
  EXPECT_EQ(barrier.count, 0u);
  EXPECT_EQ(barrier.dtype, 0);
  EXPECT_EQ(barrier.redop, 0);
  EXPECT_EQ(make_collective(said(MUSTER_EXCHANGE, 7), 0, 2, {.count = 9})->count, 0u);
  EXPECT_EQ(make_collective(said(MUSTER_GATHER, 1), 0, 2, {.count = 9})->count, 0u) << "agreed pair by pair";
}

TEST(Collective, RefusesToBeWhatIsNoOperation) {
  for (const muster_op op : {-1, 0, kOperations + 1})
    EXPECT_FALSE(make_collective(said(op, 0), 0, 2, {.count = 9}).has_value()) << op;
}

TEST(Collective, KnowsWhoSendsToWhom) {
  const Collective send = *make_collective(said(MUSTER_SEND, 2), 1, 3, {.count = 1});
  EXPECT_EQ(send.root, 1);
  EXPECT_EQ(send.receiver, 2);
  const Collective receive = *make_collective(said(MUSTER_RECV, 1), 2, 3, {.count = 1});
  EXPECT_EQ(receive.root, 1);
  EXPECT_EQ(receive.receiver, 2);
  const auto refusal = [](muster_op op, std::int32_t peer) {
    return make_collective(said(op, peer), 1, 3, {.count = 1}).error().message();
  };
  EXPECT_NE(refusal(MUSTER_SEND, 1).find("peer 1 of send is this rank itself"), std::string::npos);
  EXPECT_NE(refusal(MUSTER_SEND, 3).find("peer 3"), std::string::npos);
  EXPECT_NE(refusal(MUSTER_SCATTER, -1).find("peer -1"), std::string::npos);
}

// Goal:   a list of equal counts and one count are the same thing.
TEST(Collective, TakesEqualCountsForEvenBlocks) {
  const std::uint64_t even[] = {4, 4, 4};
  const std::uint64_t uneven[] = {4, 5, 4};
  const Collective a =
      *make_collective(said(MUSTER_ALL_GATHER, 0), 0, 3, {.count = 77, .target_counts = even});
  EXPECT_TRUE(a.counts.empty());
  EXPECT_EQ(a.count, 4u);
  const Collective b =
      *make_collective(said(MUSTER_REDUCE_SCATTER, 0), 0, 3, {.count = 77, .source_counts = uneven});
  EXPECT_EQ(b.counts, std::vector<std::uint64_t>({4, 5, 4}));
  EXPECT_EQ(b.count, 0u);
  const auto wrong = make_collective(said(MUSTER_ALL_GATHER, 0), 0, 2, {.count = 0, .target_counts = even});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find("target_blocks.counts has 3 entries"), std::string::npos);
}

TEST(Collective, HasNames) {
  EXPECT_STREQ(op_name(MUSTER_ALL_REDUCE), "all_reduce");
  EXPECT_STREQ(op_name(MUSTER_EXCHANGE), "exchange");
  EXPECT_STREQ(op_name(0), "unknown_op");
  EXPECT_STREQ(op_name(13), "unknown_op");
  EXPECT_STREQ(redop_name(0), "none");
  EXPECT_STREQ(redop_name(MUSTER_PREMUL_SUM), "premul_sum");
  EXPECT_STREQ(redop_name(7), "unknown_redop");
}

}  // namespace
}  // namespace muster
