#include "daemon/supervisor/connection_shares.hpp"

#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

constexpr std::uint32_t kDaemon = 7;
constexpr ConnectionShares::Limits kTen{.all = 10, .reserved = 3, .of_one = 4};

void fill(ConnectionShares& shares, std::uint32_t uid, int count) {
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(shares.has_room(uid)) << uid << ": " << i;
    shares.enter(uid);
  }
}

TEST(ConnectionShares, BoundOneUser) {
  ConnectionShares shares(kTen, kDaemon);
  fill(shares, 1000, 4);
  EXPECT_FALSE(shares.has_room(1000));
  EXPECT_TRUE(shares.share_used(1000));
  EXPECT_EQ(shares.in_the_way(1000), 1000u) << "a crowd pushes itself out";
  EXPECT_TRUE(shares.has_room(1001));
  shares.leave(1000);
  EXPECT_TRUE(shares.has_room(1000));
}

TEST(ConnectionShares, KeepAReserveForThoseWhoGovern) {
  ConnectionShares shares(kTen, kDaemon);
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

TEST(ConnectionShares, BoundThoseWhoGovernByTheWholeAlone) {
  ConnectionShares shares(kTen, kDaemon);
  fill(shares, 0, 10);
  EXPECT_FALSE(shares.has_room(0));
  EXPECT_FALSE(shares.share_used(0));
  EXPECT_EQ(shares.in_the_way(1000), 0u) << "there is nobody else to make room";
}

TEST(ConnectionShares, SpareTheReserve) {
  ConnectionShares shares(kTen, kDaemon);
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

}  // namespace
}  // namespace muster::supervisor
