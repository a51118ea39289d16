#include "api/client/check/starts_in_flight.hpp"

#include <array>
#include <initializer_list>
#include <memory>

#include <gtest/gtest.h>

namespace muster::client {
namespace {

std::array<std::byte, 64> memory;

MemoryUse use(std::size_t from, std::size_t to, bool writes) {
  return {writes, true, memory.data() + from, memory.data() + to, {}};
}

class InFlight : public ::testing::Test {
 protected:
  static StartsInFlight::Next next(muster_lane lane, std::initializer_list<muster_point> waits,
                                   MemoryUses uses) {
    return {"a start", std::make_shared<const MemoryUses>(std::move(uses)), lane, waits};
  }
  // Adds it if it races with nothing.
  muster_point start(const StartsInFlight::Next& what) {
    if (starts.race_of(what)) return MUSTER_POINT_NONE;
    const muster_point point = shm::make_point(what.lane, ++count[what.lane]);
    starts.add(what, point);
    return point;
  }
  bool races(muster_lane lane, std::initializer_list<muster_point> waits, MemoryUses uses) const {
    return starts.race_of(next(lane, waits, std::move(uses))).has_value();
  }

  StartsInFlight starts;
  std::array<std::uint64_t, shm::kLanesMax> count{};
};

const MemoryUses kReads{use(0, 8, false)};
const MemoryUses kWrites{use(0, 8, true)};

TEST_F(InFlight, RaceIfOneWritesWhatTheOtherUses) {
  start(next(0, {}, kReads));
  EXPECT_FALSE(races(1, {}, kReads));
  EXPECT_TRUE(races(1, {}, kWrites));
  EXPECT_TRUE(races(1, {}, {use(7, 9, true)}));
  EXPECT_FALSE(races(1, {}, {use(8, 9, true)}));
  EXPECT_FALSE(races(1, {}, {}));
}

TEST_F(InFlight, ComeAfterTheOnesBeforeThemOnTheirLane) {
  start(next(3, {}, kWrites));
  start(next(3, {}, {}));
  EXPECT_FALSE(races(3, {}, kWrites));
  EXPECT_TRUE(races(4, {}, kWrites));
}

TEST_F(InFlight, ComeAfterAllThatTheirWaitsComeAfter) {
  start(next(0, {}, kWrites));                              // 0.1
  const muster_point second = start(next(0, {}, {}));       // 0.2 after 0.1
  const muster_point third = start(next(1, {second}, {}));  // 1.1 after 0.2
  const muster_point fourth = start(next(2, {third}, {}));  // 2.1 after 1.1
  start(next(2, {}, {}));                                   // 2.2
  EXPECT_FALSE(races(5, {second}, kWrites));
  EXPECT_FALSE(races(5, {fourth}, kWrites));
  EXPECT_FALSE(races(2, {}, kWrites)) << "by its lane";
  EXPECT_TRUE(races(5, {}, kWrites));
  const muster_point other = start(next(6, {}, {}));
  EXPECT_TRUE(races(5, {other}, kWrites));
}

TEST_F(InFlight, ComeAfterWhatTheProcessHasSeenEnd) {
  const muster_point first = start(next(0, {}, kWrites));
  const muster_point last = start(next(1, {first}, {}));
  EXPECT_TRUE(starts.race_of(kReads));
  EXPECT_EQ(starts.reach(last).size(), 2U) << "what it came after has ended too";
  EXPECT_FALSE(starts.race_of(kReads));
  EXPECT_FALSE(races(5, {}, kWrites));
  EXPECT_TRUE(starts.reach(last).empty());
  start(next(0, {}, kWrites));
  EXPECT_TRUE(races(5, {}, kWrites)) << "the next one is another";
}

// Goal:   a start that has failed proves nothing of what it waited for.
TEST_F(InFlight, ThatFailSayNothingOfTheirWaits) {
  const muster_point first = start(next(0, {}, kWrites));
  const muster_point second = start(next(1, {first}, {use(8, 16, true)}));
  EXPECT_EQ(starts.fail(second).size(), 1U);
  EXPECT_FALSE(races(5, {}, {use(8, 16, true)}));
  EXPECT_TRUE(races(5, {}, kReads));
  EXPECT_TRUE(races(1, {}, kReads)) << "its lane runs again, and not after that";
}

TEST_F(InFlight, AreJudgedOnceWhatTheyWaitForIsRaised) {
  const muster_point raised = shm::make_point(shm::kClientTimelineFirst, 1);
  const muster_point early = start(next(0, {raised}, kWrites));
  ASSERT_NE(early, MUSTER_POINT_NONE);
  EXPECT_TRUE(starts.is_open(early));
  EXPECT_FALSE(starts.race_of(kWrites)) << "the process may use it until then";
  const muster_point between = start(next(1, {}, kReads));
  ASSERT_NE(between, MUSTER_POINT_NONE);
  const auto race = starts.race_by_signal(shm::kClientTimelineFirst, 1);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->later->point, early);
  EXPECT_EQ(race->race.earlier->point, between);
  EXPECT_FALSE(starts.race_by_signal(shm::kClientTimelineFirst + 1, 1));
  starts.reach(between);
  EXPECT_FALSE(starts.race_by_signal(shm::kClientTimelineFirst, 1));
  EXPECT_EQ(starts.signal(shm::kClientTimelineFirst, 1).size(), 1U);
  EXPECT_FALSE(starts.is_open(early));
  EXPECT_TRUE(starts.race_of(kWrites));
  EXPECT_TRUE(races(1, {}, kReads));
  EXPECT_FALSE(races(1, {early}, kReads));
}

// Goal:   a start behind one that waits for the process waits for the process too.
TEST_F(InFlight, WaitForTheProcessAsTheirLaneDoes) {
  const muster_point raised = shm::make_point(shm::kClientTimelineFirst, 4);
  start(next(0, {raised}, {}));
  const muster_point behind = start(next(0, {}, kWrites));
  EXPECT_TRUE(starts.is_open(behind));
  const muster_point seen = start(next(1, {}, kWrites));
  starts.reach(seen);
  starts.signal(shm::kClientTimelineFirst, 3);
  EXPECT_TRUE(starts.is_open(behind));
  starts.signal(shm::kClientTimelineFirst, 9);
  EXPECT_FALSE(starts.is_open(behind));
  EXPECT_FALSE(races(0, {}, kWrites));
}

TEST_F(InFlight, CanBeTakenBack) {
  start(next(0, {}, {}));
  const auto before = starts.mark();
  starts.add(next(0, {}, kWrites), shm::make_point(0, 2));
  EXPECT_TRUE(races(1, {}, kReads));
  starts.back_to(before);
  EXPECT_FALSE(races(1, {}, kReads));
}

TEST_F(InFlight, GoWithTheirMemory) {
  start(next(0, {}, kWrites));
  starts.forget(memory.data() + 8, memory.data() + 64);
  EXPECT_TRUE(races(1, {}, kReads));
  starts.forget(memory.data(), memory.data() + 64);
  EXPECT_FALSE(races(1, {}, kReads));
}

TEST_F(InFlight, AreNoMoreThanItRemembers) {
  std::size_t forgotten = 0;
  for (std::size_t i = 0; i < StartsInFlight::kRememberedMax + 3; ++i) {
    starts.add(next(0, {}, {}), shm::make_point(0, i + 1));
    forgotten += starts.forget_oldest().size();
  }
  EXPECT_EQ(forgotten, 3U);
}

}  // namespace
}  // namespace muster::client
