// Absences: who will not come, and why, as long as that is so.
#include "scheduler/run/absences.hpp"

#include <array>
#include <memory>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

constexpr char kText[] = "its program has ended";

CausePtr cause(std::uint64_t fault, const char* text) {
  return std::make_shared<const Cause>(Cause{Code::kPeerLost, 1, text, fault});
}

class AbsencesTest : public ::testing::Test {
 protected:
  AbsencesTest() {
    for (const Rank rank : {kZero, kOne, kTwo}) absences_.attached(rank);
  }

  static constexpr Rank kZero{0}, kOne{1}, kTwo{2};
  Absences absences_{World(3)};
};

// Goal:   a rank that was made to leave by a fault, came back, and then left of itself, left of itself.
TEST_F(AbsencesTest, ForgetWhyARankLeftOnceItIsBack) {
  absences_.left(kOne, cause(1, "rank 0 died"));
  EXPECT_EQ(absences_.reason(kOne, kText).text, "rank 0 died");
  EXPECT_FALSE(absences_.attached(kOne)) << "it has come before in this run";
  absences_.left(kOne, nullptr);
  const Cause now = absences_.reason(kOne, kText);
  EXPECT_EQ(now.text, kText);
  EXPECT_EQ(now.culprit, 1);
  EXPECT_EQ(now.fault, 0u);
}

TEST_F(AbsencesTest, CountWhileTheRankIsAway) {
  absences_.left(kOne, nullptr);
  EXPECT_EQ(absences_.of(kOne), nullptr) << "it may come back";
  absences_.add(kOne, cause(2, kText));
  EXPECT_TRUE(absences_.known(kOne));
  ASSERT_NE(absences_.of(kOne), nullptr);
  EXPECT_EQ(absences_.of(kOne)->text, kText);
  absences_.attached(kOne);
  EXPECT_FALSE(absences_.known(kOne));
  absences_.left(kOne, nullptr);
  EXPECT_EQ(absences_.of(kOne), nullptr) << "what was said before it came back";
}

// Goal:   a fault that made a rank leave explains its absence better than what its launcher says.
TEST_F(AbsencesTest, TakeTheFaultThatMadeARankLeave) {
  absences_.add(kOne, cause(2, kText));
  absences_.left(kOne, cause(1, "rank 0 died"));
  ASSERT_NE(absences_.of(kOne), nullptr);
  EXPECT_EQ(absences_.of(kOne)->text, "rank 0 died");
}

TEST_F(AbsencesTest, NameTheEarliestFaultOfThoseAsked) {
  const std::array all{kZero, kOne, kTwo};
  EXPECT_EQ(absences_.first_of(all), nullptr);
  absences_.left(kOne, nullptr);
  absences_.add(kOne, cause(5, "later"));
  absences_.left(kTwo, nullptr);
  absences_.add(kTwo, cause(3, "earlier"));
  ASSERT_NE(absences_.first_of(all), nullptr);
  EXPECT_EQ(absences_.first_of(all)->text, "earlier");
  EXPECT_EQ(absences_.first_of(std::array{kZero, kOne})->text, "later");
  EXPECT_EQ(absences_.first_of(std::array{kZero}), nullptr);
}

TEST_F(AbsencesTest, EndWithTheRunInWhichTheyWereSaid) {
  absences_.left(kOne, cause(1, "rank 0 died"));
  absences_.add(kOne, cause(2, kText));
  absences_.expect_all();
  EXPECT_EQ(absences_.of(kOne), nullptr);
  EXPECT_EQ(absences_.reason(kOne, kText).text, kText);
  absences_.add(kOne, cause(3, kText));
  absences_.left(kZero, nullptr);
  EXPECT_FALSE(absences_.nobody());
  absences_.left(kTwo, nullptr);
  EXPECT_TRUE(absences_.nobody());
  EXPECT_FALSE(absences_.known(kOne)) << "the last client has left";
  absences_.begin_run();
  EXPECT_TRUE(absences_.attached(kOne)) << "the first of the new run";
}

}  // namespace
}  // namespace muster::scheduler
