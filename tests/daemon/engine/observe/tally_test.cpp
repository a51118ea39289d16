#include "daemon/engine/observe/tally.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <unistd.h>

namespace muster::engine {
namespace {

using shm::GroupCount;
using shm::RankCount;

constexpr std::uint32_t kWorld = 3;
constexpr std::uint32_t kFirstMade = 1 + kWorld;  // behind the mesh's and those of single ranks

class TallyTest : public ::testing::Test {
 protected:
  explicit TallyTest(std::uint32_t made_max = 2)
      : stage_({kWorld, 64, 4}, groups()),
        tally_(*Tally::create(kWorld, std::vector{groups()[0]}, {kFirstMade, made_max}, 1)),
        reader_(*shm::JobCountersReader::attach(shm::Descriptor(dup(tally_.descriptor())))),
        stragglers_(kWorld, kFirstMade + made_max) {}
  static std::vector<scheduler::Group> groups() {
    std::vector<scheduler::Group> all{{"world", {Rank(0), Rank(1), Rank(2)}}};
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) all.push_back({"self", {Rank(rank)}});
    for (int made = 0; made < 2; ++made) all.push_back({"made", {Rank(0), Rank(1)}});
    return all;
  }
  // Every member of the group does an operation well.
  void operate(std::uint32_t group) {
    const std::vector<Rank> ranks = groups()[group].ranks;
    for (const Rank rank : ranks) {
      const scheduler::Plan& plan =
          *stage_.collective(group, rank.value, scheduler::test::Stage::all_reduce(4));
      tally_.submitted(rank, plan);
      tally_.retired(rank, plan, true, Nanos(10));
    }
  }
  void write() {
    const std::vector<Tally::Counted> ranks(kWorld);
    tally_.write(ranks, nullptr, stragglers_, Nanos(1));
  }
  std::uint64_t row(std::uint32_t group, GroupCount count) const { return reader_.row(group)->value(count); }

  scheduler::test::Stage stage_;
  Tally tally_;
  shm::JobCountersReader reader_;
  StragglerStatistics stragglers_;
};

class TallyOfMany : public TallyTest {
 protected:
  TallyOfMany() : TallyTest(4096) {}
};

TEST_F(TallyTest, HasARowForEachGroupOfTheMeshAndForOnesMadeLater) {
  ASSERT_EQ(reader_.groups(), 3u);
  operate(0);
  operate(1);  // a rank alone has none
  write();
  EXPECT_EQ(reader_.row(0)->name, "world");
  EXPECT_EQ(row(0, GroupCount::kMembers), 3u);
  EXPECT_EQ(row(0, GroupCount::kOperations), 1u);
  for (const std::uint32_t made : {1u, 2u}) {
    EXPECT_EQ(row(made, GroupCount::kMembers), 0u);
    EXPECT_EQ(row(made, GroupCount::kOperations), 0u);
  }
}

// Goal:   a made group is counted while it is there, and the next one in its place from 0.
TEST_F(TallyTest, GivesAFreedGroupsRowToTheNextWithoutItsNumbers) {
  const GroupId place(kFirstMade + 1);
  tally_.set_group(place, {"survivors", {Rank(0), Rank(1)}});
  for (int i = 0; i < 5; ++i) operate(place.value);
  tally_.set_traffic(place, {.late_messages = 3, .bulk_ahead = 4'096, .sent_bytes = 77});
  write();
  EXPECT_EQ(reader_.row(1)->name, "survivors");
  EXPECT_EQ(row(1, GroupCount::kLate), 3u);
  EXPECT_EQ(row(1, GroupCount::kBulkAhead), 4'096u);
  EXPECT_EQ(row(1, GroupCount::kSentBytes), 77u);
  EXPECT_EQ(row(1, GroupCount::kId), place.value);
  EXPECT_EQ(row(1, GroupCount::kMembers), 2u);
  EXPECT_EQ(row(1, GroupCount::kOperations), 5u);
  EXPECT_EQ(row(1, GroupCount::kBusyNs), 100u);
  EXPECT_EQ(row(2, GroupCount::kOperations), 0u);
  const std::uint64_t former = row(1, GroupCount::kRow);
  tally_.set_group(place, {});
  write();
  EXPECT_EQ(row(1, GroupCount::kMembers), 0u) << "nobody's";
  tally_.set_group(place, {"pair", {Rank(1), Rank(2)}});
  write();
  EXPECT_EQ(reader_.row(1)->name, "pair");
  EXPECT_NE(row(1, GroupCount::kRow), former);
  EXPECT_EQ(row(1, GroupCount::kOperations), 0u);
  EXPECT_EQ(row(1, GroupCount::kBusyNs), 0u);
}

TEST_F(TallyOfMany, HasABoundedNumberOfRows) {
  ASSERT_EQ(reader_.groups(), 1 + Tally::kMadeRowsMax);
  // Whatever places they are in.
  const auto give = [&](std::uint32_t made, const std::string& name) {
    tally_.set_group(GroupId(kFirstMade + 15 * made), {name, {Rank(0), Rank(1)}});
  };
  for (std::uint32_t made = 0; made < Tally::kMadeRowsMax; ++made) give(made, std::to_string(made));
  give(Tally::kMadeRowsMax, "beyond");
  write();
  for (std::uint32_t made = 0; made < Tally::kMadeRowsMax; ++made)
    EXPECT_EQ(reader_.row(1 + made)->name, std::to_string(made));
  tally_.set_group(GroupId(kFirstMade + 15 * 7), {});
  give(Tally::kMadeRowsMax + 1, "next");
  write();
  EXPECT_EQ(reader_.row(1 + 7)->name, "next");
}

// Goal:   bytes that ranks run directly count for the groups in which they did.
// Method: one rank's own words, as its client writes them: more operations than records that are read.
TEST_F(TallyTest, CountsTheBytesOfAGroupsRuns) {
  const GroupId made(kFirstMade);
  const DirectPages direct_pages = *DirectPages::create(groups(), kWorld, 0, 1, shm::memory_headroom());
  tally_.set_group(made, groups()[made.value]);
  const auto segment =
      *shm::Mapping::map(shm::Descriptor(dup(direct_pages.segments().descriptor(Rank(1)))),
                         direct_pages.segments().bytes(Rank(1)), shm::Mapping::Access::kReadWrite);
  auto* header = reinterpret_cast<shm::DirectHeader*>(segment.writable());
  auto* records = reinterpret_cast<shm::DirectRecord*>(segment.writable() + shm::kDirectRecordsOffset);
  const auto run = [&](std::uint32_t group, std::uint64_t bytes, shm::DirectRecord::State state) {
    shm::DirectRecord& record = records[++header->recorded % shm::kDirectRecords];
    record = {};
    record.what = shm::pack_what({group, MUSTER_ALL_REDUCE, MUSTER_F32, 0});
    record.epoch = direct_pages.epochs().present(GroupId(group));
    record.target_bytes = bytes;
    record.end = static_cast<std::uint64_t>(state);
    record.index = header->recorded;
    if (state == shm::DirectRecord::State::kWell) header->bytes_moved += bytes;
  };
  const auto write = [&] {
    tally_.write(std::vector<Tally::Counted>(kWorld), &direct_pages, stragglers_, Nanos(1));
  };
  run(0, 300, shm::DirectRecord::State::kWell);
  run(made.value, 100, shm::DirectRecord::State::kWell);
  run(0, 300, shm::DirectRecord::State::kBadly);
  run(2, 50, shm::DirectRecord::State::kWell);  // a rank alone has no row
  run(0, 1000, shm::DirectRecord::State::kOpen);
  write();
  EXPECT_EQ(row(0, GroupCount::kBytes), 300u);
  EXPECT_EQ(row(1, GroupCount::kBytes), 100u);
  write();
  EXPECT_EQ(row(0, GroupCount::kBytes), 300u) << "each counts once";
  for (std::uint32_t k = 0; k < 4 * shm::kDirectRecords; ++k)
    run(k % 2 == 0 ? 0 : made.value, k % 2 == 0 ? 30 : 10, shm::DirectRecord::State::kWell);
  write();
  EXPECT_EQ(row(0, GroupCount::kBytes), 300u + 2 * shm::kDirectRecords * 30);
  EXPECT_EQ(row(1, GroupCount::kBytes), 100u + 2 * shm::kDirectRecords * 10);
}

TEST_F(TallyTest, SaysHowLateARankComesWhereItIsWorst) {
  stragglers_.set_group(GroupId(0), groups()[0].ranks);
  stragglers_.expect(GroupId(0));
  std::vector<scheduler::Plan*> plans;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank)
    plans.push_back(stage_.collective(0, rank, scheduler::test::Stage::all_reduce(4)));
  for (int i = 0; i < 100; ++i) {
    for (const std::uint32_t rank : {0u, 1u, 2u}) {
      stage_.now += std::chrono::milliseconds(rank == 2 ? 20 : 0);
      stage_.start(rank, MUSTER_LANE_SMALL, plans[rank]);
    }
    stragglers_.met(stage_.steps.at(stage_.launched.front()));
    stage_.finish_all();
  }
  write();
  EXPECT_EQ(reader_.value(2, RankCount::kLagGroup), 0u) << "nobody has looked yet";
  std::vector<StragglerStatistics::Change> changes;
  stragglers_.look(nullptr, stage_.now, changes);
  write();
  EXPECT_EQ(reader_.value(2, RankCount::kLagGroup), 1u);
  EXPECT_EQ(reader_.value(2, RankCount::kLateIn), 1u);
  EXPECT_EQ(reader_.value(2, RankCount::kLagNs), 20'000'000u);
  EXPECT_EQ(reader_.value(0, RankCount::kLateIn), 0u);
  EXPECT_EQ(reader_.value(0, RankCount::kLagNs), 0u);
}

// ---- in an engine ----------------------------------------------------------------------------------

class EngineTally : public test::EngineTest {
 protected:
  // The row of that name, once the engine has written it; none after a while.
  static std::optional<shm::JobCountersReader::GroupRow> row(const shm::JobCountersReader& counters,
                                                             const std::string& name) {
    for (int tries = 0; tries < 500; ++tries) {
      for (std::uint32_t r = 0; r < counters.groups(); ++r)
        if (auto row = counters.row(r); row && row->name == name && row->value(GroupCount::kMembers) > 0)
          return row;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::nullopt;
  }
  static bool shows(const shm::JobCountersReader& counters, const std::string& name) {
    for (std::uint32_t r = 0; r < counters.groups(); ++r)
      if (const auto row = counters.row(r); row && row->name == name) return true;
    return false;
  }
};

TEST_F(EngineTally, ShowsAMadeGroupForAsLongAsSomebodyHoldsIt) {
  std::array<Session*, 2> sessions{&attach(0), &attach(1)};
  const auto counters = *shm::JobCountersReader::attach(*engine_->reports().counters());
  const std::array<std::int32_t, 2> ranks{1, 0};
  std::uint64_t group = 0;
  for (Session* session : sessions) group = *engine_->groups().make(*session, "pair", ranks);
  const auto row_of_pair = row(counters, "pair");
  ASSERT_TRUE(row_of_pair.has_value());
  EXPECT_EQ(row_of_pair->value(GroupCount::kMembers), 2u);
  EXPECT_TRUE(engine_->groups().free(*sessions[0], group).ok());
  EXPECT_TRUE(shows(counters, "pair"));
  EXPECT_TRUE(engine_->groups().free(*sessions[1], group).ok());
  EXPECT_FALSE(shows(counters, "pair"));
  ASSERT_TRUE(engine_->groups().make(*sessions[0], "again", ranks));
  EXPECT_TRUE(row(counters, "again").has_value());
}

}  // namespace
}  // namespace muster::engine
