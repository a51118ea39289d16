#include "scheduler/run/trace.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

constexpr std::array kRanks{Rank(0)};

using ::testing::HasSubstr;
using ::testing::Not;

TraceEvent event(std::int64_t begin_us, std::int64_t end_us) {
  TraceEvent e;
  e.begin = std::chrono::microseconds(begin_us);
  e.end = std::chrono::microseconds(end_us);
  e.label = "all_reduce";
  return e;
}

// Goal:   no time of a trace is negative: viewers show such events nowhere, or everything far from them.
TEST(Trace, HasOfAnEventThatHadBegunBeforeItWhatLiesInIt) {
  Trace trace(16);
  trace.begin(std::chrono::microseconds(100));
  trace.add(event(70, 120));
  trace.add(event(70, 90));  // over before it began
  trace.add(event(130, 140));
  EXPECT_EQ(trace.size(), 2u);
  const std::string json = trace.json("job", kRanks, {}, LaneTable());
  EXPECT_THAT(json, HasSubstr("\"ts\":0.000,\"dur\":20.000"));
  EXPECT_THAT(json, HasSubstr("\"ts\":30.000,\"dur\":10.000"));
  EXPECT_THAT(json, Not(HasSubstr(":-")));
}

TEST(Trace, NamesTracksAndEventsByTheirLane) {
  LaneTable lanes;
  TraceEvent named = event(1, 2);
  named.lane = 9;
  named.lane_id = *lanes.id_of(MUSTER_LANE_GATHER, "\"quoted\"");
  TraceEvent run = event(2, 3);
  run.lane = kDirectTrack;
  Trace trace(16);
  trace.begin(Instant(0));
  trace.add(named);
  trace.add(run);
  const std::string json = trace.json("job", kRanks, {}, lanes);
  EXPECT_THAT(json, HasSubstr(R"("tid":9,"args":{"name":"gather/\"quoted\""}})"));
  EXPECT_THAT(json, HasSubstr(R"("tid":3,"args":{"name":"gather"}})"));
  EXPECT_THAT(json, HasSubstr(R"("cat":"gather/\"quoted\"")"));
  EXPECT_THAT(json, HasSubstr(R"("tid":64,"args":{"name":"direct"}})"));
}

TEST(Trace, CountsWhatItHasNoRoomFor) {
  Trace trace(1);
  trace.begin(Instant(0));
  trace.add(event(1, 2));
  trace.add(event(3, 4));
  EXPECT_EQ(trace.dropped(), 1u);
}

}  // namespace
}  // namespace muster::scheduler
