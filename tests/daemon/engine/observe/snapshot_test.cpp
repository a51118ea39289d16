#include "daemon/engine/observe/snapshot.hpp"

#include "api/base/blame/merge.hpp"
#include "daemon/control/texts/hang_report.hpp"
#include "kernels/device/registry.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/folder.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace muster::engine {
namespace {

using scheduler::test::Stage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kJob = "train";

std::vector<scheduler::Group> ring_of_three() {
  return {{"a", {Rank(0), Rank(1)}}, {"b", {Rank(1), Rank(2)}}, {"c", {Rank(2), Rank(0)}}};
}

// Sessions of ranks that have a client, for what a snapshot reads of them.
class Sessions {
 public:
  explicit Sessions(const World& world) : facts(world) {
    auto pool = device::Pool::start({});
    EXPECT_TRUE(pool);
    pool_ = *std::move(pool);
    device_ = *device::open({}, *pool_);
    const shm::Headroom headroom = shm::memory_headroom();
    for (const Rank local : world.locals()) {
      const std::uint32_t rank = local.value;
      arenas_.push_back(std::make_unique<Arena>(*device_, Arena::Options{1 << 20, 1 << 16}));
      const SessionOptions options{
          local, world.size(), SessionId(rank + 1), static_cast<std::int32_t>(100 + rank), 4, 4, Nanos(1)};
      sessions_.push_back(std::make_unique<Session>(options, *shm::SubmissionView::create(headroom),
                                                    *shm::CompletionView::create(rank + 1, 1, headroom),
                                                    *arenas_.back()));
      facts[Rank(rank)] = {
          sessions_.back().get(), {static_cast<std::int32_t>(100 + rank), 1}, Instant{0}, {}};
    }
  }
  RankTable<RankFacts> facts;

 private:
  std::unique_ptr<device::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Processes in the states that the test says.
class SaidProcesses final : public ProcessProbe {
 public:
  ProcessId identify(std::int32_t pid) const override { return {pid, 1}; }
  ProcessSight look(const ProcessId& process) const override {
    ++looks;
    const auto found = states.find(process.pid);
    return {found == states.end() ? blame::RankState::Process::kRunning : found->second, ""};
  }
  std::map<std::int32_t, blame::RankState::Process> states;
  mutable int looks = 0;
};

blame::Snapshot gather(const Stage& stage, const Sessions& sessions,
                       const DirectPages* direct_pages = nullptr) {
  return snapshot_of({kJob, stage.now, Nanos(0), stage.graph, direct_pages, sessions.facts});
}

// Goal:   three ranks that start in three groups of two, each in another order, on the engine path.
// Method: each rank starts its own group's collective, and its other one behind it on the same lane.
TEST(Snapshot, FindsACircleOfThreeGroupsInTheGraph) {
  Stage stage({3, 64, 4}, ring_of_three());
  Sessions sessions(3);
  const std::uint32_t first[] = {0, 1, 2};
  const std::uint32_t second[] = {2, 0, 1};
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    stage.now = Nanos(10 * (rank + 1));
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(first[rank], rank, Stage::all_reduce(4)));
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(second[rank], rank, Stage::all_reduce(4)));
  }
  stage.now = Nanos(1000);
  const blame::Snapshot s = gather(stage, sessions);
  ASSERT_THAT(s.waits, SizeIs(3));
  const blame::Report report = blame::assess(s);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, blame::Report::Confidence::kHigh)
      << "each part is submitted, behind the other";
  EXPECT_EQ(
      blame::because(s, report),
      "circular wait: rank 0 (a: all_reduce) -> rank 1 (b: all_reduce) -> rank 2 (c: all_reduce) -> rank 0; "
      "start them in one order at all ranks, or each on a lane of its own");
  EXPECT_EQ(wait_on_lane(s, stage.graph, Rank(1), MUSTER_LANE_SMALL), 1u);
  EXPECT_FALSE(wait_on_lane(s, stage.graph, Rank(1), MUSTER_LANE_HALO));
}

// Goal:   messages of one pair whose ends were started in another order, on lanes of any name.
TEST(Snapshot, FindsMessagesInCrossedOrder) {
  Stage stage({2, 64, 4}, {{"pair", {Rank(0), Rank(1)}}});
  Sessions sessions(2);
  for (const std::uint32_t rank : {0u, 1u})
    for (const std::uint32_t tag : {7 + 2 * rank, 9 - 2 * rank})
      stage.start(rank, rank == 0 ? MUSTER_LANE_COPY : MUSTER_LANE_HALO,
                  stage.collective(0, rank, Stage::message(rank == 0 ? MUSTER_SEND : MUSTER_RECV, tag)));
  const blame::Snapshot s = gather(stage, sessions);
  const blame::Report report = blame::assess(s, 0);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, blame::Report::Confidence::kHigh);
  EXPECT_THAT(
      blame::because(s, report),
      HasSubstr("rank 0 (pair: send of tag 7, lane copy) -> rank 1 (pair: recv of tag 9, lane halo)"));
  EXPECT_EQ(report.circle.at(0).stands, "position 2 of lane halo");
}

TEST(Snapshot, SaysWhatHoldsASubmittedPartBack) {
  Stage stage({2, 64, 4}, {{"pair", {Rank(0), Rank(1)}}});
  Sessions sessions(2);
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(4)));
  const auto timeline = shm::make_point(shm::kClientTimelineFirst, 3);
  const auto computed = stage.start(1, MUSTER_LANE_COMPUTE, stage.kernel(), {timeline});
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, Stage::all_reduce(4)), {computed});
  const blame::Snapshot s = gather(stage, sessions);
  const blame::Report report = blame::assess(s);
  ASSERT_THAT(report.culprits, SizeIs(1));
  EXPECT_EQ(report.culprits[0].rank, 1u);
  EXPECT_EQ(report.culprits[0].reason, "client timeline 64 to reach 3 (it is at 0)");
}

TEST(Snapshot, NumbersOperationsAsTheGroupAgreesOnThem) {
  Stage stage({2, 64, 4}, {{"pair", {Rank(0), Rank(1)}}});
  Sessions sessions(2);
  const auto both = [&] {
    for (const std::uint32_t rank : {0u, 1u})
      stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(4)));
  };
  both();
  stage.finish_all();
  both();
  blame::Snapshot s = gather(stage, sessions);
  ASSERT_THAT(s.waits, SizeIs(1));
  EXPECT_EQ(s.waits[0].number, 2u);
  EXPECT_TRUE(s.waits[0].missing.empty()) << "it runs";
  EXPECT_EQ(blame::assess(s).diagnosis, blame::Report::Diagnosis::kSlow);
  stage.finish_all();
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(4)));
  s = gather(stage, sessions);
  EXPECT_EQ(s.waits.at(0).number, 3u);
  ASSERT_THAT(s.waits.at(0).missing, SizeIs(1));
}

TEST(Snapshot, SaysInWhatThoseWhoHaveComeDiffer) {
  Stage stage({3, 64, 4}, {{"all", {Rank(0), Rank(1), Rank(2)}}});
  Sessions sessions(3);
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(0, 0, Stage::all_reduce(8)));
  stage.start(2, MUSTER_LANE_SMALL, stage.collective(0, 2, Stage::all_reduce(7)));
  const blame::Snapshot s = gather(stage, sessions);
  EXPECT_THAT(s.waits.at(0).difference, HasSubstr("count: 8 at rank 0"));
  EXPECT_EQ(blame::assess(s).diagnosis, blame::Report::Diagnosis::kMismatchPending);
}

TEST(Snapshot, LooksAtThoseWhoAreWaitedForAndAtNoMoreUnlessItIsAboutNoWait) {
  Stage stage(scheduler::test::world_of(4), scheduler::test::four_ranks());
  Sessions sessions(4);
  SaidProcesses probe;
  probe.states[102] = blame::RankState::Process::kStopped;
  stage.start(0, MUSTER_LANE_SMALL, stage.collective(2, 0, Stage::all_reduce(4)));
  blame::Snapshot s = gather(stage, sessions);
  look_at_processes(s, sessions.facts, probe, 0, 100);
  EXPECT_EQ(probe.looks, 3);
  const blame::Report report = blame::assess(s);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kStopped);
  const auto json = control::report_json(s, report);
  EXPECT_EQ(json.at("culprits").size(), 3u);
  EXPECT_EQ(json.at("culprits").at(1).at("process"), "stopped");
  s = gather(stage, sessions);
  look_at_processes(s, sessions.facts, probe, 0, 1);
  EXPECT_EQ(probe.looks, 4) << "bounded";
  look_at_processes(s, sessions.facts, probe, std::nullopt, 100);
  EXPECT_EQ(probe.looks, 4 + 3) << "all four, each once";
}

// Writes by hand as a client does on the direct path.
class DirectClient {
 public:
  DirectClient(const DirectPages& direct_pages, std::uint32_t rank)
      : rank_(rank),
        map_(*shm::Mapping::map(shm::Descriptor(dup(direct_pages.segments().descriptor(Rank(rank)))),
                                direct_pages.segments().bytes(Rank(rank)),
                                shm::Mapping::Access::kReadWrite)) {}
  void arrive(const DirectPages& direct_pages, std::uint32_t group, std::uint64_t number, std::int64_t now) {
    for (const auto& member : direct_pages.segments().members(GroupId(group))) {
      if (static_cast<std::uint32_t>(member.rank) != rank_) continue;
      auto* slot = reinterpret_cast<shm::DirectSlot*>(map_.writable() + member.region + shm::kSlotsOffset +
                                                      (number & 1) * shm::kSlotBytes);
      slot->position = number;
    }
    shm::DirectRecord record;
    record.index = ++index_;
    record.what = shm::pack_what({group, MUSTER_ALL_REDUCE, MUSTER_F32, 0});
    record.epoch = direct_pages.epochs().present(GroupId(group));
    record.number = number;
    record.target_bytes = 16;
    record.begun_ns = static_cast<std::uint64_t>(now);
    write(record);
  }
  void write(const shm::DirectRecord& record) {
    std::memcpy(
        map_.writable() + shm::kDirectRecordsOffset + record.index % shm::kDirectRecords * sizeof record,
        &record, sizeof record);
    reinterpret_cast<shm::DirectHeader*>(map_.writable())->recorded = record.index;
  }
  // Has read all that it wanted of the operation.
  void depart(const DirectPages& direct_pages, std::uint32_t group, std::uint64_t number) {
    for (const auto& member : direct_pages.segments().members(GroupId(group))) {
      if (static_cast<std::uint32_t>(member.rank) != rank_) continue;
      auto* region = reinterpret_cast<shm::MemberRegion*>(map_.writable() + member.region);
      region->progress = shm::make_progress(number, shm::kPhaseLast);
    }
  }
  void await_readers_of(std::uint64_t record) {
    reinterpret_cast<shm::DirectHeader*>(map_.writable())->awaiting = record;
  }

 private:
  std::uint32_t rank_;
  std::uint64_t index_ = 0;
  shm::Mapping map_;
};

TEST(Snapshot, FindsACircleOfThreeGroupsRunDirectly) {
  Stage stage({3, 64, 4}, ring_of_three());
  Sessions sessions(3);
  const auto groups = ring_of_three();
  auto direct_pages = *DirectPages::create(groups, 3, 0, 1, shm::memory_headroom());
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    DirectClient(direct_pages, rank).arrive(direct_pages, rank, 1, 10 * (rank + 1));
  stage.now = Nanos(1000);
  const blame::Snapshot s = gather(stage, sessions, &direct_pages);
  ASSERT_THAT(s.waits, SizeIs(3));
  const blame::Report report = blame::assess(s);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, blame::Report::Confidence::kHigh);
  EXPECT_THAT(report.circle, SizeIs(3));
  EXPECT_EQ(wait_run_by(s, GroupId(1), 1), 1u);
}

// Goal:   a member that has come and was held up before it could say what it runs is looked at, too.
TEST(Snapshot, KnowsOfAMemberThatHasComeAndRecordedNothing) {
  const std::vector<scheduler::Group> groups{{"pair", {Rank(0), Rank(1)}}};
  Stage stage({2, 64, 4}, groups);
  Sessions sessions(2);
  auto direct_pages = *DirectPages::create(groups, 2, 0, 1, shm::memory_headroom());
  DirectClient(direct_pages, 0).arrive(direct_pages, 0, 1, 10);
  DirectClient held(direct_pages, 1);
  held.arrive(direct_pages, 0, 1, 20);
  shm::DirectRecord none;
  held.write(none);
  stage.now = Nanos(1000);
  blame::Snapshot s = gather(stage, sessions, &direct_pages);
  ASSERT_THAT(s.waits, SizeIs(1));
  EXPECT_THAT(s.waits[0].arrived, SizeIs(1));
  EXPECT_THAT(s.waits[0].inside, ElementsAre(0, 1));
  SaidProcesses processes;
  processes.states[101] = blame::RankState::Process::kStopped;
  look_at_processes(s, sessions.facts, processes, 0, 8);
  EXPECT_EQ(blame::assess(s, 0).diagnosis, blame::Report::Diagnosis::kStopped);
}

// Goal:   a member that waits for a stopped reader of its data is not the one to blame.
// Method: rank 0 has finished in the first group, where rank 1 still reads, and rank 2 waits for it in the
//         other. Operations of all kinds that give what others read.
TEST(Snapshot, KnowsWhoWaitsForReaders) {
  for (const std::uint8_t op : {MUSTER_ALL_REDUCE, MUSTER_GATHER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE}) {
    SCOPED_TRACE(op_name(op));
    const std::vector<scheduler::Group> groups{{"read", {Rank(0), Rank(1)}}, {"next", {Rank(0), Rank(2)}}};
    Stage stage({3, 64, 4}, groups);
    Sessions sessions(3);
    auto direct_pages = *DirectPages::create(groups, 3, 0, 1, shm::memory_headroom());
    DirectClient giver(direct_pages, 0);
    giver.arrive(direct_pages, 0, 1, 10);
    shm::DirectRecord over;
    over.index = 1;
    over.what = shm::pack_what({0, op, MUSTER_F32, 0});
    over.epoch = direct_pages.epochs().present(GroupId(0));
    over.number = 1;
    over.begun_ns = 10;
    over.end = static_cast<std::uint64_t>(shm::DirectRecord::State::kWell);
    giver.write(over);
    giver.await_readers_of(over.index);
    DirectClient reader(direct_pages, 1);
    reader.arrive(direct_pages, 0, 1, 20);
    DirectClient(direct_pages, 2).arrive(direct_pages, 1, 1, 30);
    stage.now = Nanos(1000);
    blame::Snapshot s = gather(stage, sessions, &direct_pages);
    ASSERT_THAT(s.waits, SizeIs(2));
    EXPECT_THAT(s.waits[0].inside, ElementsAre(1));
    EXPECT_THAT(s.waits[0].awaiting, ElementsAre(0));
    SaidProcesses processes;
    processes.states[101] = blame::RankState::Process::kStopped;
    look_at_processes(s, sessions.facts, processes, 1, 8);
    const blame::Report report = blame::assess(s, 1);
    EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kStopped);
    EXPECT_EQ(report.confidence, blame::Report::Confidence::kHigh);
    ASSERT_THAT(report.culprits, SizeIs(1));
    EXPECT_EQ(report.culprits[0].rank, 1u);
    giver.await_readers_of(7);
    EXPECT_THAT(gather(stage, sessions, &direct_pages).waits[0].awaiting, SizeIs(0)) << "no such record";
    giver.await_readers_of(over.index);
    reader.depart(direct_pages, 0, 1);
    EXPECT_THAT(gather(stage, sessions, &direct_pages).waits[0].awaiting, SizeIs(0)) << "all have read it";
  }
}

// Goal:   one rank starts what another runs: they will never meet, and it is called so.
TEST(Snapshot, TellsWhereMembersTakeTwoPaths) {
  Stage stage({2, 64, 4}, {{"pair", {Rank(0), Rank(1)}}});
  Sessions sessions(2);
  const std::vector<scheduler::Group> groups{{"pair", {Rank(0), Rank(1)}}};
  auto direct_pages = *DirectPages::create(groups, 2, 0, 1, shm::memory_headroom());
  DirectClient(direct_pages, 0).arrive(direct_pages, 0, 1, 10);
  stage.start(1, MUSTER_LANE_SMALL, stage.collective(0, 1, Stage::all_reduce(4)));
  stage.now = Nanos(1000);
  const blame::Snapshot s = gather(stage, sessions, &direct_pages);
  EXPECT_EQ(blame::assess(s).diagnosis, blame::Report::Diagnosis::kMismatchPending);
}

// Goal:   a client may write anything about itself, and harms nobody.
TEST(Snapshot, BelievesNoRecordThatCannotBe) {
  const std::vector<scheduler::Group> groups{{"pair", {Rank(0), Rank(1)}}, {"other", {Rank(1)}}};
  auto direct_pages = *DirectPages::create(groups, 2, 0, 1, shm::memory_headroom());
  Stage stage({2, 64, 4}, groups);
  Sessions sessions(2);
  DirectClient client(direct_pages, 0);
  const auto with = [&](auto change) {
    shm::DirectRecord record;
    record.index = 1;
    record.what = shm::pack_what({0, MUSTER_ALL_REDUCE, MUSTER_F32, 0});
    record.epoch = 1;
    record.number = 1;
    change(record);
    client.write(record);
    return gather(stage, sessions, &direct_pages);
  };
  EXPECT_THAT(with([](auto& r) { r.what = shm::pack_what({2, 1, 1, 0}); }).waits, SizeIs(0));
  EXPECT_THAT(with([](auto& r) { r.what = shm::pack_what({1, 1, 1, 0}); }).waits, SizeIs(0)) << "no member";
  EXPECT_THAT(with([](auto& r) { r.what = shm::pack_what({0, MUSTER_SEND, 1, 9}); }).waits, SizeIs(0));
  EXPECT_THAT(with([](auto& r) { r.end = 3; }).waits, SizeIs(0));
  EXPECT_THAT(with([](auto& r) { r.epoch = 2; }).waits, SizeIs(0)) << "not the group's";
  // An operation that no enum knows, at a time to come: it is shown as it is, and not older than now.
  stage.now = Nanos(50);
  const blame::Snapshot s = with([](auto& r) {
    r.what = shm::pack_what({0, 250, 250, 0});
    r.begun_ns = UINT64_MAX;
  });
  ASSERT_THAT(s.waits, SizeIs(1));
  EXPECT_EQ(s.waits[0].since, Nanos(50));
  // A count that no ring holds.
  shm::DirectRecord record;
  record.index = UINT64_MAX;
  client.write(record);
  std::uint64_t lost = 0;
  EXPECT_LE(direct_pages.records().flights(Rank(0), 0, &lost).size(), shm::kDirectRecords);
}

// ---- processes ---------------------------------------------------------------------------------

class PlantedFiles : public ::testing::Test {
 protected:
  void plant(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void plant_stat(char state, int started = 777) const {
    plant("proc/42/stat",
          fmt::format("42 (a (b) c) {} 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 {} 99 100\n", state,
                      started));
  }
  ProcessSight look(std::uint64_t started = 777) const {
    return SystemProcesses({root_ + "/proc", root_ + "/cgroup"}).look({42, started});
  }
  const test::Folder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(PlantedFiles, TellTheStateOfAProcess) {
  using Process = blame::RankState::Process;
  EXPECT_EQ(look().state, Process::kDead) << "no such process";
  for (const auto& [letter, state] : {std::pair('R', Process::kRunning), std::pair('S', Process::kRunning),
                                      std::pair('D', Process::kRunning), std::pair('T', Process::kStopped),
                                      std::pair('t', Process::kStopped), std::pair('Z', Process::kDead)}) {
    plant_stat(letter);
    EXPECT_EQ(look().state, state) << letter;
  }
  plant_stat('R', 778);
  EXPECT_EQ(look().state, Process::kDead) << "another process has the number";
  EXPECT_EQ(look(0).state, Process::kUnknown) << "nobody knows which process was meant";
  plant("proc/42/stat", "42 (cut");
  EXPECT_EQ(look().state, Process::kUnknown);
}

TEST_F(PlantedFiles, TellOfAFrozenCgroupOfEitherVersion) {
  using Process = blame::RankState::Process;
  plant_stat('S');
  plant("proc/42/cgroup", "6:freezer:/job\n1:cpu:/\n0::/job\n");
  plant("cgroup/freezer/job/freezer.state", "THAWED\n");
  EXPECT_EQ(look().state, Process::kRunning);
  plant("cgroup/freezer/job/freezer.state", "FROZEN\n");
  EXPECT_EQ(look().state, Process::kFrozen);
  EXPECT_EQ(look().where, root_ + "/cgroup/freezer/job");
  plant("proc/42/cgroup", "0::/job\n");
  EXPECT_EQ(look().state, Process::kRunning);
  plant("cgroup/unified/job/cgroup.events", "populated 1\nfrozen 1\n");
  EXPECT_EQ(look().state, Process::kFrozen);
  plant("proc/42/cgroup", "0::/../job\n");
  EXPECT_EQ(look().state, Process::kRunning);
}

TEST(SystemProcesses, KnowThisProcess) {
  const SystemProcesses processes;
  const ProcessId self = processes.identify(getpid());
  EXPECT_NE(self.started, 0u);
  EXPECT_EQ(processes.look(self).state, blame::RankState::Process::kRunning);
}

// Goal:   a late rank is in the report beside its diagnosis, which is another matter.
TEST(Snapshot, NamesStragglersInTextAndJson) {
  const std::vector<scheduler::Group> groups{{"pair", {Rank(1), Rank(0)}}};
  Stage stage({2, 64, 4}, groups);
  Sessions sessions(2);
  StragglerStatistics stragglers(2, 1);
  stragglers.set_group(GroupId(0), groups[0].ranks);
  stragglers.expect(GroupId(0));
  for (int i = 0; i < 100; ++i) {
    for (const std::uint32_t rank : {1u, 0u}) {
      stage.now += std::chrono::milliseconds(rank == 0 ? 20 : 0);
      stage.start(rank, MUSTER_LANE_SMALL, stage.collective(0, rank, Stage::all_reduce(4)));
    }
    stragglers.met(stage.steps.at(stage.launched.front()));
    stage.finish_all();
  }
  std::vector<StragglerStatistics::Change> changes;
  stragglers.look(nullptr, stage.now, changes);
  const blame::Snapshot s =
      snapshot_of({kJob, stage.now, Nanos(0), stage.graph, nullptr, sessions.facts, &stragglers});
  const control::Json report = control::report_json(s, blame::assess(s));
  EXPECT_EQ(report.at("verdict"), "healthy");
  ASSERT_EQ(report.at("stragglers").size(), 1u);
  const control::Json& straggler = report.at("stragglers").at(0);
  EXPECT_EQ(straggler.at("rank"), 0);
  EXPECT_EQ(straggler.at("group"), "pair");
  EXPECT_EQ(straggler.at("median_ns"), 20'000'000);
  EXPECT_EQ(straggler.at("operations"), 100);
  EXPECT_EQ(report.at("ranks").at(0).at("lag").at("histogram").at(15), 100) << "[16.4, 32.8) ms";
  EXPECT_EQ(report.at("ranks").at(1).at("lag").at("median_ns"), 0);
  EXPECT_THAT(
      report.at("text").get<std::string>(),
      HasSubstr("late     group pair: rank 0 comes late: median 20.0 ms behind the first over the last "
                "100 operations; the others 0.00 ms\n"));
}

// ---- groups that span nodes --------------------------------------------------------------------

// The engine of one of two nodes, with two ranks each, and groups of ranks of both: "cross" of 1 and 2,
// "world" of all.
class OfTwoNodes {
 public:
  explicit OfTwoNodes(std::uint32_t here)
      : world(world_of_two(here)),
        stage({world, 64, 4}, {{"left", {Rank(0), Rank(1)}},
                               {"right", {Rank(2), Rank(3)}},
                               {"cross", {Rank(1), Rank(2)}, 77},
                               {"world", {Rank(0), Rank(1), Rank(2), Rank(3)}, 78}}),
        sessions(world) {}
  void start(std::uint32_t rank, std::uint32_t group) {
    stage.start(rank, MUSTER_LANE_SMALL, stage.collective(group, rank, Stage::all_reduce(4)));
  }
  blame::NodePart part() const {
    blame::NodePart part;
    part.node = world.name_of(world.here());
    for (const Rank rank : world.locals()) part.ranks.push_back(rank.value);
    const Evidence evidence{kJob, stage.now, Nanos(1), stage.graph, nullptr, sessions.facts};
    part.snapshot = snapshot_of(evidence);
    add_for_merge(evidence, *part.snapshot);
    look_at_processes(*part.snapshot, sessions.facts, probe, std::nullopt, 100);
    return part;
  }

  const World world;
  Stage stage;
  Sessions sessions;
  SaidProcesses probe;

 private:
  static World world_of_two(std::uint32_t here) {
    const std::uint32_t node_of[] = {0, 0, 1, 1};
    return *World::build({"node0", "node1"}, node_of, NodeIndex(here));
  }
};

std::vector<std::uint32_t> missing_ranks(const blame::Wait& wait) {
  std::vector<std::uint32_t> ranks;
  for (const blame::Wait::Missing& missing : wait.missing) ranks.push_back(missing.rank);
  return ranks;
}

// Goal:   two engines that know their own ranks alone give what names the missing one of a group of both.
TEST(Snapshot, OfTwoNodesNamesWhoIsMissingFromAGroupOfBoth) {
  OfTwoNodes first(0);
  OfTwoNodes second(1);
  second.probe.states[103] = blame::RankState::Process::kStopped;
  first.stage.now = Nanos(1000);
  first.start(0, 3);
  first.start(1, 3);
  EXPECT_EQ(blame::assess(*first.part().snapshot).diagnosis, blame::Report::Diagnosis::kHealthy)
      << "too young";
  first.stage.now = Nanos(9000);
  second.stage.now = Nanos(7);
  second.start(2, 3);
  second.stage.now = Nanos(50);
  blame::Snapshot merged = blame::merge(kJob, std::vector{first.part(), second.part()});
  ASSERT_THAT(merged.waits, SizeIs(1));
  EXPECT_THAT(missing_ranks(merged.waits[0]), ElementsAre(3));
  EXPECT_EQ(merged.waits[0].arrived.size(), 3u);
  EXPECT_EQ(merged.now - merged.waits[0].since, Nanos(8000));
  blame::Report report = blame::assess(merged);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kStopped);
  ASSERT_THAT(report.culprits, SizeIs(1));
  EXPECT_EQ(report.culprits[0].rank, 3u);
  // The second node comes too: all have, and it runs on both.
  second.start(3, 3);
  report = blame::assess(merged = blame::merge(kJob, std::vector{first.part(), second.part()}));
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kSlow);
  EXPECT_EQ(merged.waits[0].arrived.size(), 4u);
  // On the second it ends first: the first is not told that its ranks are missing.
  second.stage.finish_all();
  merged = blame::merge(kJob, std::vector{first.part(), second.part()});
  EXPECT_THAT(missing_ranks(merged.waits[0]), ElementsAre());
  // In the next one nobody of the second has come.
  first.stage.finish_all();
  first.start(0, 3);
  first.start(1, 3);
  first.stage.now += Nanos(5000);
  merged = blame::merge(kJob, std::vector{first.part(), second.part()});
  EXPECT_THAT(missing_ranks(merged.waits[0]), ElementsAre(2, 3));
}

// Goal:   a part that is queued behind an operation of several nodes leads to the ranks that are missing
//         there.
// Method: rank 2 has started in "right", where rank 3 is missing, and then in "cross"; rank 1 waits in cross.
TEST(Snapshot, OfTwoNodesFollowsAPartThatIsHeldBack) {
  OfTwoNodes first(0);
  OfTwoNodes second(1);
  first.start(1, 2);
  second.stage.now = Nanos(100);
  second.start(2, 1);
  second.start(2, 2);
  first.stage.now = second.stage.now = Nanos(5000);
  const blame::Snapshot merged = blame::merge(kJob, std::vector{first.part(), second.part()});
  ASSERT_THAT(merged.waits, SizeIs(2));
  ASSERT_THAT(missing_ranks(merged.waits[0]), ElementsAre(2));
  EXPECT_EQ(merged.waits[0].missing[0].behind, std::optional<std::size_t>(1));
  const blame::Report report = blame::assess(merged);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kNotJoined);
  EXPECT_EQ(report.confidence, blame::Report::Confidence::kHigh);
  ASSERT_THAT(report.culprits, SizeIs(1));
  EXPECT_EQ(report.culprits[0].rank, 3u);
}

// Goal:   a wait behind an operation that this node has launched is a wait for the other node.
// Method: rank 2 has come to "cross" and rank 1 has not; behind it rank 2 has started in "right".
TEST(Snapshot, OfTwoNodesFollowsAPartBehindALaunchedOperation) {
  OfTwoNodes first(0);
  OfTwoNodes second(1);
  second.start(2, 2);
  second.start(2, 1);
  second.start(3, 1);
  first.stage.now = second.stage.now = Nanos(5000);
  const blame::Snapshot merged = blame::merge(kJob, std::vector{first.part(), second.part()});
  ASSERT_THAT(merged.waits, SizeIs(2));
  const blame::Report report = blame::assess(merged);
  EXPECT_EQ(report.diagnosis, blame::Report::Diagnosis::kNotJoined);
  ASSERT_THAT(report.culprits, SizeIs(1));
  EXPECT_EQ(report.culprits[0].rank, 1u) << "and not rank 2, which has done its part";
}

}  // namespace
}  // namespace muster::engine
