#include "daemon/engine/observe/straggler_statistics.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"

#include <array>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::engine {
namespace {

using blame::Stragglers;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint32_t kWorld = 4;

// Two groups, and an empty place behind them.
const std::vector<scheduler::Group>& groups() {
  static const std::vector<scheduler::Group> kGroups{
      {"world", {Rank(0), Rank(1), Rank(2), Rank(3)}}, {"pair", {Rank(2), Rank(3)}}, {"", {}}};
  return kGroups;
}

// Direct pages whose segments the test writes as clients would, honest or not.
class Members {
 public:
  Members()
      : direct_pages(*DirectPages::create(groups(), kWorld, 1, 1, shm::memory_headroom())),
        stragglers(kWorld, static_cast<std::uint32_t>(groups().size())) {
    for (std::uint32_t rank = 0; rank < kWorld; ++rank)
      segments_.push_back(
          *shm::Mapping::map(shm::Descriptor(dup(direct_pages.segments().descriptor(Rank(rank)))),
                             direct_pages.segments().bytes(Rank(rank)), shm::Mapping::Access::kReadWrite));
    for (std::uint32_t g = 0; g < groups().size(); ++g) {
      stragglers.set_group(GroupId(g), groups()[g].ranks);
      stragglers.expect(GroupId(g));
    }
  }

  // The next record of the rank.
  void record(std::uint32_t rank, std::uint32_t group, std::uint64_t number, Instant at,
              std::uint32_t op = MUSTER_BARRIER) {
    const std::uint64_t index = ++recorded_[rank];
    shm::DirectRecord& record = records(rank)[index % shm::kDirectRecords];
    record.what = shm::pack_what({group, static_cast<std::uint8_t>(op), 0, 0});
    record.epoch = direct_pages.epochs().present(GroupId(group));
    record.number = number;
    record.begun_ns = static_cast<std::uint64_t>(at.count());
    record.end = 0;
    record.index = index;
    header(rank)->recorded = index;
  }
  // One collective of the group; `delay` is of each of its ranks.
  template<class Delay>
  void meet(std::uint32_t group, Delay delay) {
    now += milliseconds(40);
    ++number_[group];
    for (const Rank rank : groups()[group].ranks)
      record(rank.value, group, number_[group], now + delay(rank.value));
    now += milliseconds(40);
  }
  std::vector<StragglerStatistics::Change> look() {
    std::vector<StragglerStatistics::Change> changes;
    stragglers.look(&direct_pages, now, changes);
    return changes;
  }
  std::uint32_t counted(std::uint32_t group) {
    look();
    return stragglers.of(GroupId(group))->operations();
  }
  std::uint64_t number(std::uint32_t group) const { return number_[group]; }
  shm::DirectHeader* header(std::uint32_t rank) {
    return reinterpret_cast<shm::DirectHeader*>(segments_[rank].writable());
  }
  shm::DirectRecord* records(std::uint32_t rank) {
    return reinterpret_cast<shm::DirectRecord*>(segments_[rank].writable() + shm::kDirectRecordsOffset);
  }
  void begin_anew() { number_ = {}; }

  DirectPages direct_pages;
  StragglerStatistics stragglers;
  Instant now{std::chrono::seconds(1000)};

 private:
  std::vector<shm::Mapping> segments_;
  std::array<std::uint64_t, kWorld> recorded_{};
  std::array<std::uint64_t, 3> number_{};
};

const auto kRank3Late = [](std::uint32_t rank) { return milliseconds(rank == 3 ? 20 : 0); };
const auto kInTime = [](std::uint32_t rank) { return microseconds(10 * rank); };

TEST(StragglerStatistics, NamesWhoComesLateOnTheDirectPath) {
  Members m;
  std::vector<StragglerStatistics::Change> changes;
  int operations = 0;
  while (changes.empty() && operations < 100) {
    m.meet(0, kRank3Late);
    ++operations;
    changes = m.look();
  }
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].rank, Rank(3));
  EXPECT_EQ(changes[0].group, GroupId(0));
  EXPECT_TRUE(changes[0].late);
  ASSERT_THAT(m.stragglers.stragglers(), SizeIs(1));
  EXPECT_EQ(m.stragglers.stragglers()[0].rank, 3u);
  EXPECT_EQ(m.stragglers.stragglers()[0].median, milliseconds(20));
  EXPECT_EQ(m.stragglers.worst(Rank(3)).late_in, 1u);
  EXPECT_EQ(m.stragglers.worst(Rank(0)).late_in, 0u);
  EXPECT_FALSE(m.stragglers.of(GroupId(2)));
}

// Goal:   nothing is missed or counted twice, however looks fall among the members' arrivals.
TEST(StragglerStatistics, CountsEachOperationOnceWhenLooksComeInBetween) {
  Members m;
  m.meet(0, kInTime);  // an epoch's first is the mark for the next
  for (std::uint64_t n = 2; n <= 41; ++n) {
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      m.now += milliseconds(1);
      m.record(rank, 0, n, m.now);
      EXPECT_EQ(m.counted(0), n - 2 + (rank + 1 == kWorld ? 1 : 0));
    }
  }
  EXPECT_EQ(m.counted(0), 40u);
}

TEST(StragglerStatistics, FindsAnOperationAmongThoseOfOtherGroups) {
  Members m;
  m.meet(0, kInTime);
  for (int i = 0; i < 30; ++i) {
    m.meet(0, kInTime);
    for (int k = 0; k < 4; ++k) m.meet(1, kRank3Late);
  }
  m.look();
  EXPECT_EQ(m.stragglers.of(GroupId(0))->operations(), 30u);
  EXPECT_EQ(m.stragglers.of(GroupId(1))->operations(), 100u);
  EXPECT_FALSE(m.stragglers.of(GroupId(0))->late(3));
  ASSERT_TRUE(m.stragglers.of(GroupId(1))->late(1));
  EXPECT_EQ(m.stragglers.worst(Rank(3)).group, GroupId(1)) << "where it is worst";
  EXPECT_EQ(m.stragglers.worst(Rank(1)).group, GroupId(0));
}

// Goal:   operations that come faster than they are read are read in part, and the reading goes on.
TEST(StragglerStatistics, ReadsASampleOfManyOperations) {
  Members m;
  for (int look = 0; look < 3; ++look) {
    for (int i = 0; i < 5000; ++i) m.meet(0, kInTime);
    EXPECT_EQ(m.counted(0), Stragglers::kWindow);
  }
  std::uint64_t all = 0;
  for (const std::uint64_t count : m.stragglers.of(GroupId(0))->histogram(0)) all += count;
  EXPECT_GT(all, 2000u);
  EXPECT_LT(all, 3 * shm::kDirectRecords);
}

TEST(StragglerStatistics, LeavesOutPairsAndEpochsThatAreOver) {
  Members m;
  m.meet(0, kInTime);
  for (std::uint64_t n = 2; n < 10; ++n)
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) m.record(rank, 0, n, m.now, MUSTER_SEND);
  EXPECT_EQ(m.counted(0), 0u);
  m.meet(0, kInTime);
  EXPECT_EQ(m.counted(0), 1u);
  m.meet(0, kInTime);
  m.direct_pages.epochs().end(
      GroupId(0),
      std::make_shared<const scheduler::Cause>(scheduler::Cause{Code::kPeerLost, 3, "rank 3 died", 1}),
      scheduler::Epochs::Why::kLoss);
  EXPECT_EQ(m.counted(0), 1u) << "of an epoch that is over";
  m.begin_anew();
  m.meet(0, kInTime);
  m.meet(0, kInTime);
  EXPECT_EQ(m.counted(0), 2u);
}

TEST(StragglerStatistics, ForgetsTheGroupsOfARankThatLeaves) {
  Members m;
  for (int i = 0; i < 100; ++i) m.meet(0, kRank3Late);
  EXPECT_THAT(m.look(), SizeIs(1));
  std::vector<StragglerStatistics::Change> changes;
  m.stragglers.left(Rank(0), changes);
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].rank, Rank(3));
  EXPECT_FALSE(changes[0].late);
  EXPECT_THAT(m.stragglers.stragglers(), IsEmpty());
  EXPECT_EQ(m.stragglers.worst(Rank(3)).late_in, 0u);
  EXPECT_FALSE(m.stragglers.worst(Rank(3)).group);
}

TEST(StragglerStatistics, ForgetsAGroupThatIsGone) {
  Members m;
  for (int i = 0; i < 100; ++i) m.meet(1, kRank3Late);
  m.look();
  EXPECT_EQ(m.stragglers.worst(Rank(3)).late_in, 1u);
  m.stragglers.set_group(GroupId(1), {});
  EXPECT_EQ(m.stragglers.worst(Rank(3)).late_in, 0u);
  EXPECT_THAT(m.look(), IsEmpty());
}

// ---- members that lie ------------------------------------------------------------------------------

// Goal:   a member that reports an impossibly early arrival makes no other member late.
TEST(StragglerStatistics, DoesNotBelieveAnArrivalBeforeTheOperationBeforeWasOver) {
  for (const Nanos lie :
       {Nanos(milliseconds(90)), Nanos(milliseconds(200)), Nanos(std::chrono::seconds(999))}) {
    Members m;
    for (int i = 0; i < 200; ++i) {
      m.meet(0, [&](std::uint32_t rank) { return rank == 1 ? -lie : Nanos(0); });
      EXPECT_THAT(m.look(), IsEmpty());
    }
    EXPECT_THAT(m.stragglers.stragglers(), IsEmpty());
    EXPECT_EQ(m.stragglers.of(GroupId(0))->operations(), 0u);
  }
}

// Goal:   a member that reports a late arrival, falsely, makes only itself late.
TEST(StragglerStatistics, LetsAMemberCallItselfLateAlone) {
  Members m;
  for (int i = 0; i < 200; ++i) {
    m.meet(1, [](std::uint32_t rank) { return milliseconds(rank == 2 ? 30 : 0); });
    m.look();
  }
  ASSERT_THAT(m.stragglers.stragglers(), SizeIs(1));
  EXPECT_EQ(m.stragglers.stragglers()[0].rank, 2u);
}

TEST(StragglerStatistics, WaitsForATimeThatHasNotComeYet) {
  Members m;
  for (int i = 0; i < 100; ++i)
    m.meet(0, [](std::uint32_t rank) { return std::chrono::hours(rank == 2 ? 1 : 0); });
  EXPECT_EQ(m.counted(0), 0u);
  EXPECT_THAT(m.stragglers.stragglers(), IsEmpty());
}

TEST(StragglerStatistics, CountsNoOperationThatOneMemberRecordedTwice) {
  Members m;
  m.meet(0, kInTime);
  for (std::uint64_t n = 2; n < 60; ++n) {
    m.now += milliseconds(10);
    for (const std::uint32_t rank : {0u, 1u, 2u, 2u}) m.record(rank, 0, n, m.now);
  }
  EXPECT_EQ(m.counted(0), 0u);
}

// Goal:   whatever stands in a member's segment, a look is bounded and blames none of the honest.
// Method: rank 0 fills its header and records with anything, while the others go on.
TEST(StragglerStatistics, SurvivesAnythingInAMembersRecords) {
  Members m;
  std::mt19937_64 random(23);
  const auto word = [&] {
    const std::uint64_t bits = random();
    switch (bits % 4) {
      case 0:
        return bits;
      case 1:
        return bits >> 56;
      case 2:
        return UINT64_MAX - (bits >> 60);
      default:
        return static_cast<std::uint64_t>(m.now.count()) + (bits >> 40) - (std::uint64_t{1} << 23);
    }
  };
  for (int i = 0; i < 300; ++i) {
    m.meet(0, kInTime);
    m.meet(1, kInTime);
    for (std::uint32_t k = 0; k < shm::kDirectRecords; ++k) {
      shm::DirectRecord& r = m.records(0)[k];
      r = {word(),       shm::pack_what({static_cast<std::uint32_t>(random() % 5), MUSTER_BARRIER, 0, 0}),
           random() % 3, m.number(0) - random() % 4,
           word(),       word(),
           word(),       word()};
      if (random() % 2 == 0) r.index = k;
    }
    m.header(0)->recorded = random() % 2 == 0 ? word() : random() % shm::kDirectRecords;
    m.look();
    for (const auto& straggler : m.stragglers.stragglers()) EXPECT_EQ(straggler.rank, 0u);
  }
  EXPECT_EQ(m.counted(1), Stragglers::kWindow) << "a group without the liar is counted as ever";
}

// ---- the engine path -------------------------------------------------------------------------------

// Goal:   a step carries when each member came, in the group's order.
TEST(StragglerStatistics, NamesWhoComesLateOnTheEnginePath) {
  scheduler::test::Stage stage({kWorld, 64, 4}, groups());
  StragglerStatistics stragglers(kWorld, static_cast<std::uint32_t>(groups().size()));
  stragglers.set_group(GroupId(0), groups()[0].ranks);
  stragglers.expect(GroupId(0));
  std::vector<scheduler::Plan*> plans;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank)
    plans.push_back(stage.collective(0, rank, scheduler::test::Stage::all_reduce(4)));
  std::vector<StragglerStatistics::Change> changes;
  for (int i = 0; i < 100 && changes.empty(); ++i) {
    for (const std::uint32_t rank : {2u, 0u, 3u, 1u}) {
      stage.now += rank == 1 ? milliseconds(20) : milliseconds(0);
      stage.start(rank, MUSTER_LANE_SMALL, plans[rank]);
    }
    stragglers.met(stage.steps.at(stage.launched.front()));
    stage.finish_all();
    stragglers.look(nullptr, stage.now, changes);
  }
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].rank, Rank(1));
  EXPECT_EQ(stragglers.stragglers()[0].median, milliseconds(20));
  stage.start(0, MUSTER_LANE_COMPUTE, stage.kernel());
  stragglers.met(stage.steps.at(stage.launched.front()));
  stragglers.look(nullptr, stage.now, changes);
  EXPECT_THAT(changes, SizeIs(1)) << "a kernel is nobody's arrival";
}

// Goal:   an exchange by neighbours, which arrive in several steps, is judged as a whole.
// Method: a ring in which one rank is late; those who need not wait for it go on.
TEST(StragglerStatistics, NamesWhoComesLateToItsNeighbours) {
  scheduler::test::Stage stage({kWorld, 64, 4}, groups());
  StragglerStatistics stragglers(kWorld, static_cast<std::uint32_t>(groups().size()));
  stragglers.set_group(GroupId(0), groups()[0].ranks);
  stragglers.expect(GroupId(0));
  std::vector<scheduler::Plan*> plans;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank)
    plans.push_back(stage.exchange(0, rank, {(rank + 1) % kWorld, (rank + kWorld - 1) % kWorld}));
  std::vector<StragglerStatistics::Change> changes;
  for (int i = 0; i < 100 && changes.empty(); ++i) {
    for (const std::uint32_t rank : {2u, 0u, 3u, 1u}) {
      stage.now += rank == 1 ? milliseconds(20) : milliseconds(0);
      stage.start(rank, MUSTER_LANE_HALO, plans[rank]);
    }
    EXPECT_GT(stage.launched.size(), 1u);
    for (const std::uint32_t step : stage.launched) stragglers.met(stage.steps.at(step));
    stage.finish_all();
    stragglers.look(nullptr, stage.now, changes);
  }
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].rank, Rank(1));
  EXPECT_EQ(stragglers.stragglers()[0].median, milliseconds(20));
}

}  // namespace
}  // namespace muster::engine
