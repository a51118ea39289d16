#include "api/base/blame/stragglers.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::blame {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kControlOperations = 100'000;

// A group whose members come when the test says, operation by operation.
class Group {
 public:
  explicit Group(std::uint32_t members) : lags(members), arrivals_(members) {}

  // One operation, `delays` after its beginning.
  template<class Delay>
  void meet(Delay delay) {
    now_ += milliseconds(50);
    for (std::uint32_t i = 0; i < arrivals_.size(); ++i) arrivals_[i] = now_ + delay(i);
    lags.met(arrivals_);
  }
  std::vector<std::uint32_t> judge() {
    std::vector<std::uint32_t> changed;
    lags.judge(bench_, changed);
    return changed;
  }
  std::vector<std::uint32_t> late() const {
    std::vector<std::uint32_t> members;
    for (std::uint32_t i = 0; i < lags.members(); ++i)
      if (lags.late(i)) members.push_back(i);
    return members;
  }
  // Meets until a flag changes; how many operations that took, at most `most`.
  template<class Delay>
  int meet_until_change(Delay delay, int most) {
    for (int operation = 1; operation <= most; ++operation) {
      meet(delay);
      if (!judge().empty()) return operation;
    }
    return most + 1;
  }

  Stragglers lags;

 private:
  std::vector<Instant> arrivals_;
  Instant now_{0};
  Stragglers::Workbench bench_;
};

// The delay that an operating system adds to an arrival: mostly microseconds, rarely one time slice or many.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}
  Nanos operator()() {
    const double uniform = std::uniform_real_distribution<double>(1e-6, 1.0)(random_);
    return Nanos(static_cast<std::int64_t>(std::min(20'000.0 * std::pow(uniform, -0.8), 3e9)));
  }

 private:
  std::mt19937_64 random_;
};

class StragglersOf : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Members, StragglersOf, ::testing::Values(2u, 3u, 8u));

TEST_P(StragglersOf, NameOneThatIsLateBy20MsWithin100Operations) {
  for (std::uint32_t slow = 0; slow < GetParam(); ++slow) {
    SCOPED_TRACE(::testing::Message() << "member " << slow);
    Group group(GetParam());
    Noise noise(slow + 1);
    const auto delay = [&](std::uint32_t i) { return noise() + (i == slow ? milliseconds(20) : Nanos(0)); };
    EXPECT_LE(group.meet_until_change(delay, 100), 100);
    EXPECT_THAT(group.late(), ElementsAre(slow));
    EXPECT_NEAR(static_cast<double>(group.lags.median(slow).count()), 20e6, 1e6);
    EXPECT_LT(group.lags.others(slow), milliseconds(1));
  }
}

// Goal:   a rank that begins to come late after a long while of coming in time is named as soon.
TEST_P(StragglersOf, NameOneThatBeginsToBeLate) {
  Group group(GetParam());
  Noise noise(3);
  for (int i = 0; i < 1000; ++i) group.meet([&](std::uint32_t) { return noise(); });
  EXPECT_THAT(group.judge(), IsEmpty());
  const auto delay = [&](std::uint32_t i) { return noise() + (i == 1 ? milliseconds(20) : Nanos(0)); };
  EXPECT_LE(group.meet_until_change(delay, 100), 100);
  EXPECT_THAT(group.late(), ElementsAre(1));
}

TEST_P(StragglersOf, RaiseNoFlagInAControlRun) {
  Group group(GetParam());
  Noise noise(7);
  int raised = 0;
  Nanos longest{0};
  for (int i = 0; i < kControlOperations; ++i) {
    group.meet([&](std::uint32_t) {
      const Nanos delay = noise();
      longest = std::max(longest, delay);
      return delay;
    });
    if (i % 10 == 0) raised += static_cast<int>(group.judge().size());
  }
  EXPECT_EQ(raised, 0);
  EXPECT_GT(longest, milliseconds(20)) << "the noise has a tail that would do for a straggler";
}

TEST_P(StragglersOf, CallNobodyLateWhereAllAreLateEqually) {
  Group group(GetParam());
  Noise noise(9);
  for (int i = 0; i < 1000; ++i) {
    group.meet([&](std::uint32_t) { return noise() + milliseconds(20); });
    EXPECT_THAT(group.judge(), IsEmpty());
  }
}

// Goal:   a flag that is up stays for a whole window after it was right for the last time, and then goes.
TEST_P(StragglersOf, TakeAFlagAwayAfterAWholeWindowInWhichItDidNotHold) {
  Group group(GetParam());
  Noise noise(11);
  const auto in_time = [&](std::uint32_t) { return noise(); };
  const auto delay = [&](std::uint32_t i) { return noise() + (i == 0 ? milliseconds(20) : Nanos(0)); };
  for (int i = 0; i < 100; ++i) group.meet(delay);
  EXPECT_THAT(group.judge(), ElementsAre(0));
  const int lasted = group.meet_until_change(in_time, 1000);
  EXPECT_GT(lasted, static_cast<int>(Stragglers::kWindow));
  EXPECT_LE(lasted, 2 * static_cast<int>(Stragglers::kWindow));
  EXPECT_THAT(group.late(), IsEmpty());
}

TEST(Stragglers, DoNotFlickerWhereOneIsLateNowAndThen) {
  Group group(4);
  Noise noise(13);
  int changes = 0;
  for (int i = 0; i < 10'000; ++i) {
    const bool slow = i / 75 % 2 == 0;  // stretches shorter than a window
    group.meet([&](std::uint32_t m) { return noise() + (m == 2 && slow ? milliseconds(20) : Nanos(0)); });
    changes += static_cast<int>(group.judge().size());
  }
  EXPECT_EQ(changes, 1);
  EXPECT_THAT(group.late(), ElementsAre(2));
}

// Goal:   some of many may be late; but where as many come late as not, that is what is usual here.
TEST(Stragglers, NameSeveralButNotHalfOfTheOthers) {
  const auto late_of = [](std::uint32_t members, std::uint32_t slow) {
    Group group(members);
    Noise noise(17);
    for (int i = 0; i < 200; ++i)
      group.meet([&](std::uint32_t m) { return noise() + (m < slow ? milliseconds(20) : Nanos(0)); });
    group.judge();
    return group.late().size();
  };
  EXPECT_EQ(late_of(8, 2), 2u);
  EXPECT_EQ(late_of(8, 3), 3u);
  EXPECT_EQ(late_of(3, 2), 0u);
  EXPECT_EQ(late_of(8, 7), 0u) << "one comes early, and nobody is late";
}

// Goal:   where lags are long and differ, 20 ms more are nothing.
TEST(Stragglers, MeasureByWhatIsUsual) {
  Group group(8);
  std::mt19937_64 random(19);
  const auto usual = [&] { return microseconds(std::uniform_int_distribution<int>(0, 60'000)(random)); };
  for (int i = 0; i < 1000; ++i) {
    group.meet([&](std::uint32_t m) { return usual() + (m == 5 ? milliseconds(20) : Nanos(0)); });
    EXPECT_THAT(group.judge(), IsEmpty());
  }
}

TEST(Stragglers, WaitForEnoughOperationsAndBeginAnew) {
  Group group(2);
  const auto delay = [](std::uint32_t i) { return milliseconds(i == 1 ? 20 : 0); };
  EXPECT_EQ(group.meet_until_change(delay, 100), static_cast<int>(Stragglers::kEnough));
  EXPECT_EQ(group.lags.operations(), Stragglers::kEnough);
  group.lags.restart();
  EXPECT_THAT(group.late(), IsEmpty());
  EXPECT_EQ(group.lags.operations(), 0u);
  EXPECT_EQ(group.lags.histogram(1)[Stragglers::bucket_of(milliseconds(20))], 0u);
  EXPECT_EQ(group.meet_until_change(delay, 100), static_cast<int>(Stragglers::kEnough));
}

TEST(Stragglers, CountLagsByPowersOfTwo) {
  EXPECT_EQ(Stragglers::bucket_of(Nanos(999)), 0u);
  EXPECT_EQ(Stragglers::bucket_of(microseconds(1)), 1u);
  EXPECT_EQ(Stragglers::bucket_of(Nanos(1999)), 1u);
  EXPECT_EQ(Stragglers::bucket_of(microseconds(2)), 2u);
  EXPECT_EQ(Stragglers::bucket_of(std::chrono::hours(24)), Stragglers::kBuckets - 1);
  EXPECT_EQ(Stragglers::bucket_of(Nanos(-1)), 0u);
  Group group(2);
  for (int i = 0; i < 300; ++i) group.meet([](std::uint32_t m) { return microseconds(m == 1 ? 5 : 0); });
  EXPECT_EQ(group.lags.histogram(0)[0], 300u);
  EXPECT_EQ(group.lags.histogram(1)[3], 300u) << "[4, 8) µs, of all operations and not the window alone";
}

TEST(Stragglers, AreNamedInOneSentence) {
  EXPECT_EQ(
      sentence_of({3, 0, "dp_shard", microseconds(20'100), microseconds(20), 100}),
      "group dp_shard: rank 3 comes late: median 20.1 ms behind the first over the last 100 operations; "
      "the others 0.02 ms");
  EXPECT_EQ(lag_text(milliseconds(3100)), "3.1 s");
  const Straggler late{3, 0, "dp", microseconds(20'100), microseconds(20), 100};
  const Straggler later{1, 0, "dp", milliseconds(31), microseconds(20), 100};
  const std::string worst =
      "group dp: rank 1 comes late: median 31.0 ms behind the first over the last 100 operations; the others "
      "0.02 ms";
  EXPECT_EQ(sentence_of(std::vector{later}), worst);
  EXPECT_EQ(sentence_of(std::vector{late, later}), worst + "; 1 more rank of this group comes late");
  EXPECT_EQ(sentence_of(std::vector{late, later, late}), worst + "; 2 more ranks of this group come late");
}

}  // namespace
}  // namespace muster::blame
