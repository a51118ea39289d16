#include "daemon/supervisor/refusal_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Status kDenied = failure(Code::kDenied, "only root may do that");

Instant at(double seconds) {
  return Instant(Nanos(static_cast<std::int64_t>(seconds * 1e9)));
}

int lines(RefusalLog& log, std::uint32_t uid, int refusals, double seconds) {
  int count = 0;
  for (int i = 0; i < refusals; ++i) count += log.line(uid, 42, "shutdown", kDenied, at(seconds)) ? 1 : 0;
  return count;
}

TEST(RefusalLog, SaysWhoWasRefusedWhatAndWhy) {
  RefusalLog log;
  const auto line = log.line(1001, 4242, "shutdown", kDenied, at(5));
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("user 1001, process 4242: shutdown is refused: "));
  EXPECT_THAT(*line, HasSubstr("only root may do that"));
  EXPECT_THAT(*line, Not(HasSubstr("more")));
}

TEST(RefusalLog, CutsAStrangersWords) {
  RefusalLog log;
  EXPECT_LT(log.line(1001, 4242, std::string(60'000, 'x'), kDenied, at(5))->size(), 200u);
}

TEST(RefusalLog, BoundsTheRateOfEachUserAndCountsTheRest) {
  RefusalLog log;
  EXPECT_EQ(lines(log, 1001, 1000, 5), 10);
  EXPECT_EQ(lines(log, 1002, 1, 5), 1) << "another's are told";
  EXPECT_EQ(lines(log, 1001, 7, 5.9), 0);
  const auto resumed = log.line(1001, 42, "token", kDenied, at(6));
  ASSERT_TRUE(resumed);
  EXPECT_THAT(*resumed, HasSubstr("; and 997 more before it"));
  EXPECT_EQ(lines(log, 1001, 5, 6), 0);
  EXPECT_EQ(lines(log, 1001, 1000, 9), 3) << "one a second";
  EXPECT_EQ(lines(log, 1001, 1000, 1000), 10) << "no more than at first, after however long";
}

TEST(RefusalLog, KnowsAsManyUsersAsItHasRoomFor) {
  RefusalLog log;
  for (std::uint32_t uid = 0; uid < RefusalLog::kUsersMax; ++uid) EXPECT_EQ(lines(log, uid, 20, 5), 10);
  EXPECT_EQ(lines(log, 7'000, 20, 5), 10);
  EXPECT_EQ(lines(log, 7'001, 20, 5), 0) << "those beyond are one";
  EXPECT_EQ(lines(log, 3, 20, 5), 0) << "who is known stays so";
  EXPECT_EQ(lines(log, 7'001, 20, 20), 10) << "who has been quiet is forgotten";
}

}  // namespace
}  // namespace muster::supervisor
