#include "daemon/control/link/clocks.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace muster::control {
namespace {

using namespace std::chrono_literals;

constexpr WallTime kNow{std::chrono::sys_days{std::chrono::year{2026} / 11 / 26}};

TEST(Clocks, SayByHowMuchACertificateLiesOutsideItsDates) {
  const Validity validity{kNow - 1h, kNow + std::chrono::days(30)};
  const auto outside = [&](WallTime now) { return outside_dates("it", validity, now, "the clock"); };
  EXPECT_EQ(outside(kNow), "");
  EXPECT_EQ(outside(validity.from), "");
  EXPECT_EQ(outside(validity.until - 1s), "");
  EXPECT_EQ(outside(validity.from - 6840s),
            "it is valid from 2026-11-25 23:00:00 UTC on, which is in 1h 54m by the clock");
  EXPECT_EQ(outside(validity.until), outside(validity.until + 29s)) << "a log is not told each second";
  EXPECT_EQ(outside(validity.until + 59min),
            "it was valid until 2026-12-26 00:00:00 UTC, which is 59m ago by the clock");
  EXPECT_EQ(outside(validity.until),
            "it was valid until 2026-12-26 00:00:00 UTC, which is less than 1m ago by the clock");
  EXPECT_EQ(outside(validity.until + 28h),
            "it was valid until 2026-12-26 00:00:00 UTC, which is 1d 4h ago by the clock");
}

// A certificate may have any dates that can be written: years of four digits.
TEST(Clocks, TellOfDatesThatAreFarAway) {
  const WallTime last{std::chrono::sys_days{std::chrono::year{9999} / 12 / 31}};
  const WallTime first{std::chrono::sys_days{std::chrono::year{0} / 1 / 1}};
  EXPECT_EQ(outside_dates("it", {last, last}, kNow, "x"),
            "it is valid from 9999-12-31 00:00:00 UTC on, which is in 104166d 16h by x");
  EXPECT_EQ(outside_dates("it", {first, first}, kNow, "x"),
            "it was valid until 0-01-01 00:00:00 UTC, which is 104166d 16h ago by x");
}

TEST(Clocks, TakeATimeThatIsSaidOnlyIfItIsOne) {
  const auto taken = [](Json time) { return time_said({{"time", std::move(time)}}); };
  EXPECT_EQ(time_said({{"time", said(kNow)}}), kNow);
  const auto most = static_cast<std::uint64_t>(kTimeMax.time_since_epoch().count());
  EXPECT_EQ(taken(0U), WallTime());
  EXPECT_EQ(taken(most), kTimeMax);
  EXPECT_EQ(time_said({{"time", said(WallTime(-1s))}}), WallTime()) << "a clock before 1970 says 1970";
  for (const Json& wrong : {Json(-1), Json(std::numeric_limits<std::uint64_t>::max()), Json(most + 1),
                            Json(1.5), Json("1"), Json(nullptr), Json::array({1})})
    EXPECT_FALSE(taken(wrong)) << wrong;
  EXPECT_FALSE(time_said({{"greeting", true}}));
  EXPECT_FALSE(time_said(Json::array({1})));
}

TEST(Clocks, SayByHowMuchTheyDiffer) {
  EXPECT_EQ(clocks_apart(kNow, kNow + 59s), "");
  EXPECT_EQ(clocks_apart(kNow, kNow - 59s), "");
  EXPECT_EQ(clocks_apart(kNow, kNow + 60s), "its clock, as it says, is 1m ahead of ours");
  EXPECT_EQ(clocks_apart(kNow, kNow - 2h), "its clock, as it says, is 2h 0m behind ours");
  EXPECT_EQ(clocks_apart(kNow, kNow - 2h + 1s), clocks_apart(kNow, kNow - 2h - 1s)) << "messages take time";
  EXPECT_EQ(clocks_apart(kNow, WallTime()), "its clock, as it says, is 20783d 0h behind ours");
  EXPECT_EQ(clocks_apart(WallTime(), kTimeMax), "its clock, as it says, is 104166d 16h ahead of ours");
}

TEST(Clocks, SayWhatToDo) {
  EXPECT_EQ(cure_of_dates(kNow, kNow - 2h),
            "its clock, as it says, is 2h 0m behind ours: set the clock that is wrong (NTP)");
  EXPECT_EQ(
      cure_of_dates(kNow, kNow + 1s),
      "its clock agrees with ours: write a new certificate (`muster certs node`) and send SIGHUP, or set "
      "both clocks");
}

}  // namespace
}  // namespace muster::control
