#include "daemon/engine/memory/memory_waits.hpp"

#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::engine {
namespace {

using namespace std::chrono_literals;
using Try = MemoryWaits::Try;
using ::testing::ElementsAre;

class MemoryWaitsTest : public ::testing::Test {
 protected:
  // Notes each try.
  MemoryWaits::Again note() {
    return [this](Try which) { tries_.push_back(which); };
  }
  Instant in(Nanos time) const { return clock_.now() + time; }
  void turn_until(std::size_t tries) {
    for (const Instant end = in(10s); tries_.size() < tries && clock_.now() < end;) loop_.turn();
  }

  control::Loop loop_;
  SteadyClock clock_;
  std::vector<std::uint64_t> asked_;
  std::vector<Try> tries_;
  MemoryWaits waits_{loop_, clock_, [this](std::uint64_t bytes) { asked_.push_back(bytes); }};
};

// Goal:   all who wait share one question, and go on together.
TEST_F(MemoryWaitsTest, AskOnceForAll) {
  waits_.wait(7, in(1h), note());
  waits_.wait(8, in(1h), note());
  EXPECT_THAT(asked_, ElementsAre(7u));
  waits_.on_room();
  EXPECT_THAT(tries_, ElementsAre(Try::kMayWaitAgain, Try::kMayWaitAgain));
  waits_.on_room();
  EXPECT_EQ(tries_.size(), 2u) << "nobody waits any more";
}

// Goal:   a request that still does not fit asks again, until nothing can make room.
TEST_F(MemoryWaitsTest, AskAgainUntilThereIsNoRoom) {
  const std::function<void(Try)> again = [&](Try which) {
    tries_.push_back(which);
    if (which != Try::kLast) waits_.wait(7, in(1h), again);
  };
  waits_.wait(7, in(1h), again);
  waits_.on_room();
  waits_.on_room();
  waits_.on_no_room();
  EXPECT_THAT(asked_, ElementsAre(7u, 7u, 7u));
  EXPECT_THAT(tries_, ElementsAre(Try::kMayWaitAgain, Try::kMayWaitAgain, Try::kLast));
}

// Goal:   no request waits beyond its time, however often it waits, and one that came later has its own.
TEST_F(MemoryWaitsTest, EndEachAtItsTime) {
  const Instant until = in(20ms);
  const std::function<void(Try)> again = [&](Try which) {
    tries_.push_back(which);
    if (which != Try::kLast) waits_.wait(7, until, again);
  };
  waits_.wait(7, until, again);
  waits_.wait(8, in(1h), note());
  waits_.on_room();
  EXPECT_THAT(tries_, ElementsAre(Try::kMayWaitAgain, Try::kMayWaitAgain));
  waits_.wait(8, in(1h), note());
  turn_until(3);  // without an answer: the supervisor may have been started anew
  EXPECT_THAT(tries_, ElementsAre(Try::kMayWaitAgain, Try::kMayWaitAgain, Try::kLast));
  EXPECT_GE(clock_.now(), until);
  waits_.on_room();
  EXPECT_EQ(tries_.size(), 4u) << "the other one still waited";
}

// Goal:   after a question that nobody has answered the next request asks anew.
TEST_F(MemoryWaitsTest, DoNotCountOnALostQuestion) {
  waits_.wait(7, in(1ms), note());
  turn_until(1);
  waits_.wait(8, in(1h), note());
  EXPECT_THAT(asked_, ElementsAre(7u, 8u));
}

}  // namespace
}  // namespace muster::engine
