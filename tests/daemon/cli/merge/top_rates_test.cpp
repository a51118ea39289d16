#include "daemon/cli/merge/top_rates.hpp"

#include "daemon/cli/ask/top_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using shm::GroupCount;
using shm::RankCount;
using ::testing::HasSubstr;
using ::testing::Not;

class Top : public ::testing::Test {
 protected:
  Top()
      : writer_(*shm::JobCountersWriter::create(2, std::vector<std::string>{"tp", ""}, 1,
                                                shm::memory_headroom())),
        reader_(*shm::JobCountersReader::attach(shm::Descriptor(dup(writer_.descriptor())))) {}
  control::JobLook look(Nanos at) const { return control::look_at(reader_, at); }

  shm::JobCountersWriter writer_;
  shm::JobCountersReader reader_;
};

TEST_F(Top, TellsRatesByTheEnginesOwnTime) {
  writer_.set(0, RankCount::kAttached, 1);
  writer_.set(0, RankCount::kPid, 77);
  writer_.set(0, RankCount::kStepsCompleted, 100);
  writer_.beat(Nanos(1'000'000'000));
  const control::JobLook before = look(Nanos(1'000'000'000));
  writer_.set(0, RankCount::kStepsCompleted, 150);
  writer_.set(0, RankCount::kRuns, 50);
  writer_.set(0, RankCount::kBytesMoved, 4 << 20);
  writer_.set(0, RankCount::kExposedNs, 500'000'000);
  writer_.set(0, RankCount::kInFlight, 3);
  writer_.set(0, GroupCount::kMembers, 2);
  writer_.set(0, GroupCount::kOperations, 20);
  writer_.set(0, GroupCount::kExposedNs, 1'000'000'000);
  writer_.beat(Nanos(3'000'000'000));
  const Json now = rates(before, look(Nanos(3'050'000'000)));
  const Json& rank = now.at("ranks").at(0);
  EXPECT_EQ(rank.at("ops_per_s"), 50.0);
  EXPECT_EQ(rank.at("bytes_per_s"), 2.0 * (1 << 20));
  EXPECT_EQ(rank.at("exposed"), 0.25);
  EXPECT_EQ(rank.at("in_flight"), 3);
  EXPECT_EQ(now.at("groups").at(0).at("ops_per_s"), 10.0);
  EXPECT_EQ(now.at("groups").at(0).at("exposed"), 0.25) << "of two members in two seconds";
  EXPECT_EQ(now.at("engine_stuck"), false);
  const std::string text = TopView().text("train", now, {});
  EXPECT_THAT(text, HasSubstr("2.0 MiB/s"));
  EXPECT_THAT(text, HasSubstr("25 %"));
  EXPECT_THAT(text, HasSubstr("not attached"));
  EXPECT_THAT(text, Not(HasSubstr("SILENT")));
}

TEST_F(Top, ShowsTheUnitsOfARankAndHowItsBudgetLimitsThem) {
  writer_.set(0, RankCount::kAttached, 1);
  writer_.beat(Nanos(1'000'000'000));
  const control::JobLook before = look(Nanos(1'000'000'000));
  EXPECT_TRUE(rates(before, before).at("ranks").at(0).at("units").is_null());
  EXPECT_THAT(TopView().text("train", rates(before, before), {}), Not(HasSubstr("BUDGET")));
  writer_.set(0, RankCount::kWholeBytes, 3 << 20);
  writer_.set(0, RankCount::kPlaceBytes, 4 << 20);
  writer_.set(0, RankCount::kWholeBudget, 5 << 20);
  writer_.set(0, RankCount::kPrefetch, 1);
  writer_.set(0, RankCount::kPrefetchAsked, 3);
  writer_.set(0, RankCount::kDemands, 14);
  writer_.set(0, RankCount::kPrefetchSkipped, 6);
  writer_.beat(Nanos(3'000'000'000));
  const Json now = rates(before, look(Nanos(3'000'000'000)));
  const Json& units = now.at("ranks").at(0).at("units");
  EXPECT_EQ(units.at("whole_bytes"), 3 << 20);
  EXPECT_EQ(units.at("demands_per_s"), 7.0);
  EXPECT_EQ(units.at("skipped_per_s"), 3.0);
  EXPECT_TRUE(now.at("ranks").at(1).at("units").is_null());
  writer_.set(0, RankCount::kAttached, 0);
  EXPECT_TRUE(rates(before, look(Nanos(3'000'000'000))).at("ranks").at(0).at("units").is_null())
      << "its session has ended";
  const std::string text = TopView().text("train", now, {});
  for (const char* shown : {"UNSHARDED", "3.0 MiB", "4.0 MiB", "5.0 MiB", "1 of 3", "7.0"})
    EXPECT_THAT(text, HasSubstr(shown));
}

TEST_F(Top, SaysThatAnEngineIsSilentAndInventsNoRates) {
  writer_.set(0, RankCount::kStepsCompleted, 100);
  writer_.beat(Nanos(1'000'000'000));
  const Json now = rates(look(Nanos(2'000'000'000)), look(Nanos(5'000'000'000)));
  EXPECT_EQ(now.at("engine_stuck"), true);
  EXPECT_EQ(now.at("engine_silent_s"), 4.0);
  EXPECT_EQ(now.at("ranks").at(0).at("ops_per_s"), 0.0);
  EXPECT_THAT(TopView().text("train", now, {}), HasSubstr("SILENT for 4.0 s"));
}

// Goal:   a rank that came back counts from 0, and shows no rate of 2^64.
TEST_F(Top, TakesASmallerCountForANewStart) {
  writer_.set(1, RankCount::kRuns, 1000);
  writer_.beat(Nanos(1'000'000'000));
  const control::JobLook before = look(Nanos(1'000'000'000));
  writer_.set(1, RankCount::kRuns, 10);
  writer_.beat(Nanos(2'000'000'000));
  EXPECT_EQ(rates(before, look(Nanos(2'000'000'000))).at("ranks").at(1).at("ops_per_s"), 10.0);
}

// Goal:   a rank that comes late is marked, with the group in which it is worst.
TEST_F(Top, MarksARankThatComesLate) {
  for (const std::uint32_t rank : {0u, 1u}) writer_.set(rank, RankCount::kAttached, 1);
  writer_.set(0, GroupCount::kMembers, 2);
  writer_.set(0, RankCount::kLagGroup, 1);
  writer_.set(0, RankCount::kLagNs, 20'000);
  writer_.set(1, RankCount::kLagGroup, 1);
  writer_.set(1, RankCount::kLagNs, 20'100'000);
  writer_.set(1, RankCount::kLagOthersNs, 20'000);
  writer_.set(1, RankCount::kLateIn, 1);
  const Json now = rates(look(Nanos(1)), look(Nanos(1)));
  EXPECT_EQ(now.at("ranks").at(0).at("late"), false);
  EXPECT_EQ(now.at("ranks").at(1).at("late"), true);
  const Json& lag = now.at("ranks").at(1).at("lag");
  EXPECT_EQ(lag.at("group"), "tp");
  EXPECT_EQ(lag.at("group_id"), 0);
  EXPECT_EQ(lag.at("median_ns"), 20'100'000);
  EXPECT_EQ(lag.at("others_ns"), 20'000);
  const std::string text = TopView().text("train", now, {});
  EXPECT_THAT(text, HasSubstr("0.02 ms  "));
  EXPECT_THAT(text, HasSubstr("20.1 ms LATE"));
  EXPECT_THAT(text,
              HasSubstr("rank 1 comes late to tp: median 20.1 ms behind the first; the others 0.02 ms\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank 0 comes late")));
}

TEST_F(Top, ShowsNoLagWhereNoneIsKnown) {
  writer_.set(0, RankCount::kAttached, 1);
  writer_.set(1, RankCount::kAttached, 1);
  writer_.set(1, RankCount::kLagGroup, 77);
  writer_.set(1, RankCount::kLateIn, 2);
  writer_.set(1, RankCount::kLagNs, 30'000'000);
  const Json now = rates(look(Nanos(1)), look(Nanos(1)));
  EXPECT_TRUE(now.at("ranks").at(0).at("lag").is_null());
  EXPECT_TRUE(now.at("ranks").at(1).at("lag").at("group").is_null()) << "a group without a row";
  EXPECT_THAT(TopView().text("train", now, {}),
              HasSubstr("rank 1 comes late to group 76 (and 1 more group): median"));
}

// Goal:   a group that was made has a row while it is there, and none of the numbers of the one before it.
TEST_F(Top, ShowsAMadeGroupAndNothingOfTheFormerInItsRow) {
  const auto group_at = [&](const control::JobLook& before, const control::JobLook& after) {
    return rates(before, after).at("groups");
  };
  writer_.beat(Nanos(1'000'000'000));
  EXPECT_TRUE(group_at(look(Nanos(1)), look(Nanos(1))).empty()) << "nobody's rows are not shown";
  writer_.give_row(1, "survivors");
  writer_.set(1, GroupCount::kMembers, 3);
  writer_.set(1, GroupCount::kId, 9);
  writer_.set(1, GroupCount::kRuns, 100);
  const control::JobLook first = look(Nanos(1));
  writer_.set(1, GroupCount::kRuns, 150);
  writer_.beat(Nanos(2'000'000'000));
  const control::JobLook second = look(Nanos(1));
  const Json made = group_at(first, second);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made.at(0).at("group"), "survivors");
  EXPECT_EQ(made.at(0).at("id"), 9);
  EXPECT_EQ(made.at(0).at("ops_per_s"), 50.0);
  writer_.give_row(1, "");
  EXPECT_TRUE(group_at(second, look(Nanos(1))).empty());
  writer_.give_row(1, "pair");
  writer_.set(1, GroupCount::kMembers, 2);
  writer_.set(1, GroupCount::kRuns, 4000);
  writer_.beat(Nanos(3'000'000'000));
  const Json next = group_at(second, look(Nanos(1)));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next.at(0).at("group"), "pair");
  EXPECT_EQ(next.at(0).at("ops_per_s"), 0.0) << "since the look before it is another group's";
}

// Goal:   a member that leaves takes its part of the sums along, and the rest is not shown as new.
TEST_F(Top, TakesAGroupsSmallerSumForADeparture) {
  writer_.set(0, GroupCount::kMembers, 2);
  writer_.set(0, GroupCount::kExposedNs, 8'000'000'000);
  writer_.beat(Nanos(1'000'000'000));
  const control::JobLook before = look(Nanos(1'000'000'000));
  writer_.set(0, GroupCount::kExposedNs, 4'000'000'000);
  writer_.beat(Nanos(2'000'000'000));
  EXPECT_EQ(rates(before, look(Nanos(2'000'000'000))).at("groups").at(0).at("exposed"), 0.0);
}

}  // namespace
}  // namespace muster::cli
