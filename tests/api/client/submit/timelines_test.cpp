#include "api/client/submit/timelines.hpp"

#include <gtest/gtest.h>

namespace muster::client {
namespace {

TEST(Timelines, KnowTheStartsOfEachLane) {
  Timelines timelines;
  EXPECT_EQ(timelines.start(MUSTER_LANE_SMALL), shm::make_point(MUSTER_LANE_SMALL, 1));
  EXPECT_EQ(timelines.start(MUSTER_LANE_SMALL, 2), shm::make_point(MUSTER_LANE_SMALL, 3));
  EXPECT_EQ(timelines.latest(MUSTER_LANE_SMALL), shm::make_point(MUSTER_LANE_SMALL, 3));
  EXPECT_EQ(timelines.started(MUSTER_LANE_SMALL), 3u);
  EXPECT_EQ(timelines.started(MUSTER_LANE_COPY), 0u);
  const muster_point last = shm::make_point(MUSTER_LANE_SMALL, 3);
  const muster_point next = shm::make_point(MUSTER_LANE_SMALL, 4);
  EXPECT_TRUE(timelines.may_be_awaited(last));
  EXPECT_FALSE(timelines.may_be_awaited(next));
  EXPECT_EQ(timelines.verdict(last), std::nullopt);  // the engine says
  EXPECT_EQ(timelines.verdict(next), Code::kBadArgument);
}

TEST(Timelines, AnswerForTheirOwn) {
  Timelines timelines;
  const auto own = timelines.create();
  ASSERT_TRUE(own);
  EXPECT_TRUE(timelines.is_own(*own));
  EXPECT_FALSE(timelines.is_own(*own + 1));
  const muster_point point = shm::make_point(*own, 5);
  EXPECT_TRUE(timelines.may_be_awaited(point));
  EXPECT_EQ(timelines.verdict(point), Code::kPending);
  timelines.raise(*own, 5);
  EXPECT_EQ(timelines.raised(*own), 5u);
  EXPECT_EQ(timelines.verdict(point), Code::kOk);
}

TEST(Timelines, RefuseWhatIsNeitherLaneNorTheirOwn) {
  Timelines timelines;
  for (const std::uint32_t timeline : {shm::kLanesMax, shm::kClientTimelineFirst}) {
    EXPECT_FALSE(timelines.may_be_awaited(shm::make_point(timeline, 1))) << timeline;
    EXPECT_EQ(timelines.verdict(shm::make_point(timeline, 1)), Code::kBadArgument) << timeline;
  }
  EXPECT_TRUE(timelines.may_be_awaited(MUSTER_POINT_NONE));
  EXPECT_EQ(timelines.verdict(MUSTER_POINT_NONE), std::nullopt);
}

TEST(Timelines, AreAsManyAsTheirBound) {
  Timelines timelines;
  for (std::uint32_t i = 0; i < shm::kClientTimelinesMax; ++i) ASSERT_TRUE(timelines.create());
  const auto refused = timelines.create();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNoResource);
  EXPECT_EQ(timelines.created(), shm::kClientTimelinesMax);
}

}  // namespace
}  // namespace muster::client
