#include "daemon/engine/observe/straggler_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr GroupId kOne(1);
constexpr GroupId kOther(2);

TEST(StragglerLog, SpeaksOfAGroupOnceInItsPause) {
  StragglerLog log;
  EXPECT_THAT(log.due(Instant(0)), IsEmpty());
  log.changed(kOne);
  EXPECT_THAT(log.due(Instant(0)), ElementsAre(kOne));
  EXPECT_TRUE(log.say(kOne, true, Instant(0)));
  log.changed(kOne);
  log.changed(kOther);
  EXPECT_THAT(log.due(StragglerLog::kPause - Nanos(1)), ElementsAre(kOther)) << "each has its own pause";
  EXPECT_THAT(log.due(StragglerLog::kPause), ElementsAre(kOne, kOther));
  EXPECT_TRUE(log.say(kOne, false, StragglerLog::kPause)) << "that it is over";
  EXPECT_THAT(log.due(10 * StragglerLog::kPause), ElementsAre(kOther)) << "nothing has changed since";
}

TEST(StragglerLog, IsSilentAboutWhatCameAndWentBetweenTwoLines) {
  StragglerLog log;
  log.changed(kOne);
  EXPECT_FALSE(log.say(kOne, false, Instant(0)));
  log.changed(kOne);
  EXPECT_THAT(log.due(Instant(1)), ElementsAre(kOne)) << "nothing was said, so no pause has begun";
}

TEST(StragglerLog, ForgetsAGroupWhosePlaceAnotherHas) {
  StragglerLog log;
  log.changed(kOne);
  EXPECT_TRUE(log.say(kOne, true, Instant(0)));
  log.forget(kOne);
  log.changed(kOne);
  EXPECT_THAT(log.due(Instant(1)), ElementsAre(kOne));
}

}  // namespace
}  // namespace muster::engine
