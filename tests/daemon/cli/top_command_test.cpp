#include "daemon/cli/top_command.hpp"

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
      : writer_(
            *shm::JobCountersWriter::create(2, std::vector<std::string>{"tp"}, 1, shm::memory_headroom())),
        reader_(*shm::JobCountersReader::attach(shm::Descriptor(dup(writer_.descriptor())))) {}
  Look look(Nanos at) const { return look_at(reader_, at); }

  shm::JobCountersWriter writer_;
  shm::JobCountersReader reader_;
};

TEST_F(Top, TellsRatesByTheEnginesOwnTime) {
  writer_.set(0, RankCount::kAttached, 1);
  writer_.set(0, RankCount::kPid, 77);
  writer_.set(0, RankCount::kStepsCompleted, 100);
  writer_.beat(Nanos(1'000'000'000));
  const Look before = look(Nanos(1'000'000'000));
  writer_.set(0, RankCount::kStepsCompleted, 150);
  writer_.set(0, RankCount::kRuns, 50);
  writer_.set(0, RankCount::kBytesMoved, 4 << 20);
  writer_.set(0, RankCount::kExposedNs, 500'000'000);
  writer_.set(0, RankCount::kInFlight, 3);
  writer_.set(0, GroupCount::kMembers, 2);
  writer_.set(0, GroupCount::kOperations, 20);
  writer_.set(0, GroupCount::kExposedNs, 1'000'000'000);
  writer_.beat(Nanos(3'000'000'000));
  const Json now = rates(reader_, before, look(Nanos(3'050'000'000)));
  const Json& rank = now.at("ranks").at(0);
  EXPECT_EQ(rank.at("ops_per_s"), 50.0);
  EXPECT_EQ(rank.at("bytes_per_s"), 2.0 * (1 << 20));
  EXPECT_EQ(rank.at("exposed"), 0.25);
  EXPECT_EQ(rank.at("in_flight"), 3);
  EXPECT_EQ(now.at("groups").at(0).at("ops_per_s"), 10.0);
  EXPECT_EQ(now.at("groups").at(0).at("exposed"), 0.25) << "of two members in two seconds";
  EXPECT_EQ(now.at("engine_stuck"), false);
  const std::string text = top_text("train", now);
  EXPECT_THAT(text, HasSubstr("2.0 MiB/s"));
  EXPECT_THAT(text, HasSubstr("25 %"));
  EXPECT_THAT(text, HasSubstr("not attached"));
  EXPECT_THAT(text, Not(HasSubstr("SILENT")));
}

TEST_F(Top, SaysThatAnEngineIsSilentAndInventsNoRates) {
  writer_.set(0, RankCount::kStepsCompleted, 100);
  writer_.beat(Nanos(1'000'000'000));
  const Json now = rates(reader_, look(Nanos(2'000'000'000)), look(Nanos(5'000'000'000)));
  EXPECT_EQ(now.at("engine_stuck"), true);
  EXPECT_EQ(now.at("engine_silent_s"), 4.0);
  EXPECT_EQ(now.at("ranks").at(0).at("ops_per_s"), 0.0);
  EXPECT_THAT(top_text("train", now), HasSubstr("SILENT for 4.0 s"));
}

// Goal:   a rank that came back counts from 0, and shows no rate of 2^64.
TEST_F(Top, TakesASmallerCountForANewStart) {
  writer_.set(1, RankCount::kRuns, 1000);
  writer_.beat(Nanos(1'000'000'000));
  const Look before = look(Nanos(1'000'000'000));
  writer_.set(1, RankCount::kRuns, 10);
  writer_.beat(Nanos(2'000'000'000));
  EXPECT_EQ(rates(reader_, before, look(Nanos(2'000'000'000))).at("ranks").at(1).at("ops_per_s"), 10.0);
}

}  // namespace
}  // namespace muster::cli
