#include "scheduler/run/trace.hpp"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

constexpr std::array kRanks{Rank(0)};

using ::testing::HasSubstr;
using ::testing::Not;

Trace::Event event(std::int64_t begin_us, std::int64_t end_us) {
  Trace::Event e;
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
  Trace::Event named = event(1, 2);
  named.lane = 9;
  named.lane_id = *lanes.id_of(MUSTER_LANE_GATHER, "\"quoted\"");
  Trace::Event run = event(2, 3);
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

// Method: the texts of the sites are gone when the trace is written, as those of plans may be.
TEST(Trace, NamesSiteAndStepOfAnEvent) {
  Trace first(16);
  first.begin(Instant(0));
  for (const std::uint64_t step : {11u, 12u}) {
    const std::string site = "block\"0\"";
    Trace::Event unit = event(1, 2);
    unit.site = site;
    unit.step = step;
    first.add(unit);
  }
  const Trace trace = std::move(first);
  const std::string json = trace.json("job", kRanks, {}, LaneTable());
  for (const char* args : {R"("site":"block\"0\"","step":11)", R"("site":"block\"0\"","step":12)"})
    EXPECT_THAT(json, HasSubstr(args));
  Trace without(16);
  without.begin(Instant(0));
  without.add(event(1, 2));
  EXPECT_THAT(without.json("job", kRanks, {}, LaneTable()), Not(HasSubstr("site")));
  EXPECT_THAT(without.json("job", kRanks, {}, LaneTable()), Not(HasSubstr("step")));
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
