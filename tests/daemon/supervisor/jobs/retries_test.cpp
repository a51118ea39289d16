#include "daemon/supervisor/jobs/retries.hpp"

#include "tests/support/manual_clock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

constexpr std::uint32_t kUser = 1000;

// A table with one place, which a job has that is ending.
class RetriesTest : public ::testing::Test {
 protected:
  RetriesTest() {
    EXPECT_TRUE(table_.create(spec("first")));
    table_.ending("first");
  }
  static control::JobSpec spec(const std::string& name) {
    control::JobSpec spec;
    spec.name = name;
    spec.mesh = "dp_shard=1";
    spec.owner = kUser;
    return spec;
  }
  void wait_for_place(const std::string& job, std::uint32_t uid = kUser) {
    retries_.wait_for_place({uid, job, [this] { return left_; },
                             [this, job] {
                               applied_.push_back(job);
                               static_cast<void>(table_.create(spec(job)));
                             }});
  }

  control::Loop loop_;
  muster::test::ManualClock clock_;
  JobTable table_{Shares({.all = 1, .reserved = 0, .of_one = 1}, 7)};
  Retries retries_{loop_, clock_, table_};
  std::vector<std::string> applied_;
  bool left_ = false;
};

TEST_F(RetriesTest, GiveAPlaceToTheFirstThatCame) {
  EXPECT_TRUE(retries_.may_wait_for_place(kUser));
  wait_for_place("second");
  wait_for_place("third");
  retries_.fill_places();
  EXPECT_THAT(applied_, ElementsAre()) << "the place is still taken";
  table_.erase("first");
  retries_.fill_places();
  EXPECT_EQ(applied_.front(), "second");
  EXPECT_NE(table_.find("second"), nullptr);
}

TEST_F(RetriesTest, LetNobodyWaitForAPlaceThatDoesNotCome) {
  table_.erase("first");
  EXPECT_FALSE(retries_.may_wait_for_place(kUser)) << "there is one";
  ASSERT_TRUE(table_.create(spec("second")));
  EXPECT_FALSE(retries_.may_wait_for_place(kUser)) << "and its job stays";
}

TEST_F(RetriesTest, TellThoseWhoHaveWaitedLongEnough) {
  wait_for_place("second");
  clock_.advance(Retries::kPlaceTime);
  retries_.fill_places();
  EXPECT_THAT(applied_, ElementsAre("second"));
  EXPECT_EQ(table_.find("second"), nullptr) << "it has heard that there is no place";
}

TEST_F(RetriesTest, HaveRoomForSoManyOfAUserAndForgetWhoLeft) {
  for (std::uint64_t i = 0; i < Retries::kLimits.of_one; ++i) {
    ASSERT_TRUE(retries_.has_room(kUser)) << i;
    wait_for_place("second");
  }
  EXPECT_FALSE(retries_.has_room(kUser));
  EXPECT_TRUE(retries_.has_room(kUser + 1)) << "another user";
  left_ = true;
  EXPECT_TRUE(retries_.has_room(kUser));
  table_.erase("first");
  retries_.fill_places();
  EXPECT_THAT(applied_, ElementsAre()) << "nobody is there any more";
}

TEST_F(RetriesTest, CountACallUntilItIsMade) {
  int calls = 0;
  EXPECT_FALSE(retries_.may_try_again(Retries::kAttempts, kUser)) << "it has tried for long enough";
  for (std::uint64_t i = 0; i < Retries::kLimits.of_one; ++i) {
    ASSERT_TRUE(retries_.may_try_again(1, kUser)) << i;
    retries_.try_again(1, kUser, [&] { ++calls; });
  }
  EXPECT_FALSE(retries_.may_try_again(1, kUser));
  EXPECT_FALSE(retries_.has_room(kUser));
  for (int i = 0; i < 1'000'000 && calls < static_cast<int>(Retries::kLimits.of_one); ++i) loop_.turn();
  EXPECT_EQ(calls, static_cast<int>(Retries::kLimits.of_one));
  EXPECT_TRUE(retries_.has_room(kUser));
}

}  // namespace
}  // namespace muster::supervisor
