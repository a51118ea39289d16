#include "daemon/supervisor/base/shares.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

constexpr std::uint32_t kDaemon = 7;
constexpr Shares::Limits kTen{.all = 10, .reserved = 3, .of_one = 4};

void fill(Shares& shares, std::uint32_t uid, int count) {
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(shares.has_room(uid)) << uid << ": " << i;
    shares.enter(uid);
  }
}

TEST(Shares, BoundOneUser) {
  Shares shares(kTen, kDaemon);
  fill(shares, 1000, 4);
  EXPECT_FALSE(shares.has_room(1000));
  EXPECT_TRUE(shares.share_used(1000));
  EXPECT_EQ(shares.in_the_way(1000), 1000u) << "a crowd pushes itself out";
  EXPECT_TRUE(shares.has_room(1001));
  shares.leave(1000);
  EXPECT_TRUE(shares.has_room(1000));
}

TEST(Shares, KeepAReserveForThoseWhoGovern) {
  Shares shares(kTen, kDaemon);
  fill(shares, 1000, 4);
  fill(shares, 1001, 3);
  EXPECT_FALSE(shares.has_room(1002)) << "the rest is not for everybody";
  EXPECT_FALSE(shares.share_used(1002));
  EXPECT_EQ(shares.in_the_way(1002), 1000u) << "who has most";
  fill(shares, 0, 2);
  fill(shares, kDaemon, 1);
  EXPECT_FALSE(shares.has_room(0));
  EXPECT_EQ(shares.in_the_way(0), 1000u);
}

TEST(Shares, BoundThoseWhoGovernByTheWholeAlone) {
  Shares shares(kTen, kDaemon);
  fill(shares, 0, 10);
  EXPECT_FALSE(shares.has_room(0));
  EXPECT_FALSE(shares.share_used(0));
  EXPECT_EQ(shares.in_the_way(1000), 0u) << "there is nobody else to make room";
}

TEST(Shares, SpareTheReserve) {
  Shares shares(kTen, kDaemon);
  fill(shares, 0, 3);
  fill(shares, 1000, 2);
  fill(shares, 1001, 4);
  fill(shares, 1002, 1);
  EXPECT_EQ(shares.in_the_way(1003), 1001u);
  shares.leave(1001);
  shares.leave(1001);
  shares.leave(1001);
  fill(shares, 0, 3);  // more than its reserve
  EXPECT_EQ(shares.in_the_way(1003), 0u);
}

// Goal:   whatever the setting, there is something for users and something for those who govern.
TEST(Shares, OfSettingsLeaveAReserveAndAShare) {
  const auto limits = [](std::uint64_t all, std::uint64_t of_one) {
    const Shares::Limits made = Shares::limits_of(all, of_one);
    return std::vector<std::uint64_t>{made.all, made.reserved, made.of_one};
  };
  EXPECT_EQ(limits(1, 0), (std::vector<std::uint64_t>{1, 0, 1}));
  EXPECT_EQ(limits(2, 0), (std::vector<std::uint64_t>{2, 1, 1}));
  EXPECT_EQ(limits(8, 0), (std::vector<std::uint64_t>{8, 1, 3}));
  EXPECT_EQ(limits(9, 0), (std::vector<std::uint64_t>{9, 2, 3}));
  EXPECT_EQ(limits(16, 0), (std::vector<std::uint64_t>{16, 2, 7}));
  EXPECT_EQ(limits(16, 12), (std::vector<std::uint64_t>{16, 2, 12}));
  EXPECT_EQ(limits(0, 0), (std::vector<std::uint64_t>{0, 0, 1}));
  EXPECT_EQ(limits(UINT64_MAX, 0)[1], (UINT64_MAX >> 3) + 1);
  EXPECT_EQ(Shares(Shares::limits_of(256, 65535), kDaemon).share(1000), 224u)
      << "as settings advise where one user has the node";
}

TEST(Shares, CountAmounts) {
  Shares bytes({.all = 1000, .reserved = 200, .of_one = 500}, kDaemon);
  EXPECT_EQ(bytes.share(1000), 500u);
  EXPECT_EQ(bytes.share(0), 1000u);
  EXPECT_EQ(bytes.room(1000), 500u);
  bytes.enter(1000, 450);
  EXPECT_EQ(bytes.room(1000), 50u);
  EXPECT_EQ(bytes.room(1001), 350u) << "less than its share: the reserve is not for everybody";
  EXPECT_EQ(bytes.room(kDaemon), 550u);
  bytes.enter(1000, 100);
  EXPECT_EQ(bytes.room(1000), 0u) << "more than its share, after limits were lowered, say";
  bytes.leave(1000, 550);
  EXPECT_EQ(bytes.all(), 0u);
  EXPECT_TRUE(bytes.by_user().empty());
}

// Goal:   a refusal says who has how much, which setting it is, and who may change it.
TEST(Shares, SayWhoMayDoWhat) {
  const Shares::Words jobs{"jobs", "limits.jobs_max", "limits.jobs_per_user_max", "end one"};
  Shares shares(kTen, kDaemon);
  fill(shares, 1000, 4);
  EXPECT_EQ(shares.refusal(1000, jobs).message(),
            "user 1000 has 4 jobs, its share (limits.jobs_per_user_max); end one, or ask an administrator "
            "(root or user 7) to raise it");
  fill(shares, 1001, 3);
  EXPECT_EQ(shares.refusal(1002, jobs).message(),
            "ordinary users have 7 jobs; 3 of 10 places are reserved for root or user 7 (limits.jobs_max); "
            "end one, or ask an administrator (root or user 7) to raise it");
  fill(shares, 0, 3);
  EXPECT_EQ(shares.refusal(0, jobs).message(),
            "there are 10 jobs, the limit (limits.jobs_max); end one, or raise it");
  EXPECT_EQ(shares.refusal(1002, jobs).code(), Code::kNoResource);
}

// Goal:   a request that can never be met at once is refused before anything is begun, with the right key.
TEST(Shares, SayWhatFitsWhoeverHasWhatNow) {
  const Shares::Words sessions{"sessions", "limits.sessions_max", "limits.sessions_per_user_max", "do less"};
  Shares shares(kTen, kDaemon);
  fill(shares, 1000, 4);
  EXPECT_TRUE(shares.fits(1000, 4, sessions).ok()) << "free places do not matter";
  EXPECT_EQ(
      shares.fits(1000, 5, sessions).message(),
      "5 sessions are too many: user 1000 may have 4 (limits.sessions_per_user_max); do less, or ask an "
      "administrator (root or user 7) to raise it");
  EXPECT_TRUE(shares.fits(0, 10, sessions).ok());
  EXPECT_EQ(shares.fits(kDaemon, 11, sessions).message(),
            "11 sessions are too many: user 7 may have 10 (limits.sessions_max); do less, or raise it");
  const Shares wide({.all = 10, .reserved = 3, .of_one = 64}, kDaemon);
  EXPECT_TRUE(wide.fits(1000, 7, sessions).ok()) << "all but the reserve";
  EXPECT_EQ(wide.fits(1000, 8, sessions).code(), Code::kNoResource);
  EXPECT_NE(wide.fits(1000, 8, sessions).message().find("limits.sessions_max"), std::string::npos);
}

}  // namespace
}  // namespace muster::supervisor
