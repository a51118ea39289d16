#include "daemon/supervisor/listener/refusal_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Status kDenied = failure(Code::kDenied, "only root may do that");

Instant at(double seconds) {
  return Instant(Nanos(static_cast<std::int64_t>(seconds * 1e9)));
}

int lines(RefusalLog& log, std::uint32_t uid, int refusals, double seconds) {
  int count = 0;
  for (int i = 0; i < refusals; ++i)
    count += log.line({uid, 42, ""}, "shutdown", kDenied, at(seconds)) ? 1 : 0;
  return count;
}

TEST(RefusalLog, SaysWhoWasRefusedWhatAndWhy) {
  RefusalLog log;
  const auto line = log.line({1001, 4242, ""}, "shutdown", kDenied, at(5));
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("user 1001, process 4242: shutdown is refused: "));
  EXPECT_THAT(*line, HasSubstr("only root may do that"));
  EXPECT_THAT(*line, Not(HasSubstr("more")));
}

TEST(RefusalLog, CutsAStrangersWords) {
  RefusalLog log;
  EXPECT_LT(log.line({1001, 4242, ""}, std::string(60'000, 'x'), kDenied, at(5))->size(), 200u);
}

TEST(RefusalLog, BoundsTheRateOfEachUserAndCountsTheRest) {
  RefusalLog log;
  EXPECT_EQ(lines(log, 1001, 1000, 5), 10);
  EXPECT_EQ(lines(log, 1002, 1, 5), 1) << "another's are told";
  EXPECT_EQ(lines(log, 1001, 7, 5.9), 0);
  const auto resumed = log.line({1001, 42, ""}, "token", kDenied, at(6));
  ASSERT_TRUE(resumed);
  EXPECT_THAT(*resumed, HasSubstr("; and 997 more before it"));
  EXPECT_EQ(lines(log, 1001, 5, 6), 0);
  EXPECT_EQ(lines(log, 1001, 1000, 9), 3) << "one a second";
  EXPECT_EQ(lines(log, 1001, 1000, 1000), 10) << "no more than at first, after however long";
}

// Goal:   refusals beyond the lines of a burst are reported though nothing follows.
TEST(RefusalLog, TellsHowManyMoreWhenABurstIsOver) {
  RefusalLog log;
  EXPECT_EQ(lines(log, 1001, 50, 5), 10);
  EXPECT_EQ(lines(log, 1002, 3, 5), 3);
  EXPECT_THAT(log.due(at(5.9)), IsEmpty()) << "no line is to be had";
  EXPECT_THAT(log.due(at(6)), ElementsAre("user 1001: and 40 more are refused"));
  EXPECT_EQ(lines(log, 1001, 1, 6.5), 0) << "it was that user's line";
  EXPECT_THAT(log.due(at(7)), ElementsAre("user 1001: and 1 more are refused"));
  EXPECT_THAT(log.due(at(1000)), IsEmpty());
}

TEST(RefusalLog, TellsNoMereFailures) {
  RefusalLog log;
  for (const Code code :
       {Code::kNotFound, Code::kBusy, Code::kBadArgument, Code::kDuplicate, Code::kJobEnded})
    EXPECT_FALSE(log.line({1001, 42, ""}, "token", failure(code, "no"), at(5)));
  for (const Code code : {Code::kDenied, Code::kNoResource, Code::kProtocol})
    EXPECT_TRUE(log.line({1001, 42, ""}, "token", failure(code, "no"), at(5)));
}

TEST(RefusalLog, KnowsAsManyUsersAsItHasRoomFor) {
  RefusalLog log;
  for (std::uint32_t uid = 0; uid < RefusalLog::kUsersMax; ++uid) EXPECT_EQ(lines(log, uid, 20, 5), 10);
  EXPECT_EQ(lines(log, 7'000, 20, 5), 10);
  EXPECT_EQ(lines(log, 7'001, 20, 5), 0) << "those beyond are one";
  EXPECT_EQ(lines(log, 3, 20, 5), 0) << "who is known stays so";
  EXPECT_EQ(log.due(at(6)).size(), RefusalLog::kUsersMax + 1);
  EXPECT_EQ(lines(log, 7'002, 20, 30), 10) << "who has been quiet is forgotten";
}

}  // namespace
}  // namespace muster::supervisor
