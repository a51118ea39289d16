#include "daemon/engine/observe/flight_dump.hpp"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::engine {
namespace {

using control::Json;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<scheduler::Group> two_groups() {
  return {{"world", {Rank(0), Rank(1), Rank(2)}}, {"tp", {Rank(0), Rank(2)}}};
}

FlightEntry entry(std::uint32_t group, std::uint64_t number, FlightEntry::State state) {
  FlightEntry e;
  e.value = number;
  e.group = group;
  e.lane = MUSTER_LANE_SMALL;
  e.lane_id = scheduler::LaneTable::first_of(MUSTER_LANE_SMALL);
  e.op = MUSTER_ALL_REDUCE;
  e.dtype = MUSTER_BF16;
  e.source_bytes = e.target_bytes = 64;
  e.number = number;
  e.created = Nanos(static_cast<std::int64_t>(1000 * number));
  if (state != FlightEntry::State::kScheduled) e.started = e.created + Nanos(10);
  if (state == FlightEntry::State::kCompleted) e.completed = e.created + Nanos(500'010);
  e.timeout = std::chrono::milliseconds(500);
  e.state = state;
  std::string("model.py:311").copy(e.site.data(), e.site.size() - 1);
  return e;
}

DirectRecords::Flight flight(std::uint32_t group, std::uint32_t member, std::uint64_t index, muster_op op,
                             std::uint64_t number) {
  DirectRecords::Flight f;
  f.index = index;
  f.group = GroupId(group);
  f.member = member;
  f.what = {group, static_cast<std::uint8_t>(op), MUSTER_F32, 0};
  f.epoch = 1;
  f.number = number;
  f.source_bytes = f.target_bytes = 8;
  f.begun = Nanos(static_cast<std::int64_t>(100 * index));
  f.state = shm::DirectRecord::State::kWell;
  return f;
}

std::set<std::string> keys(const Json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

// The analyser's requirements on a dump: every key by name, with the type that it reads.
void expect_schema(const Json& dump) {
  EXPECT_THAT(keys(dump), UnorderedElementsAre("version", "comm_lib_version", "older_lost", "pg_config",
                                               "pg_status", "entries"));
  EXPECT_EQ(dump.at("version"), "2.10");
  for (const auto& [name, group] : dump.at("pg_config").items()) {
    EXPECT_THAT(keys(group), UnorderedElementsAre("name", "desc", "ranks"));
    EXPECT_EQ(group.at("name"), name);
    const Json ranks = Json::parse(group.at("ranks").get<std::string>(), nullptr, false);
    EXPECT_TRUE(ranks.is_array() && !ranks.empty()) << group;
  }
  for (const auto& [id, status] : dump.at("pg_status").items())
    EXPECT_THAT(keys(status), UnorderedElementsAre("last_enqueued_collective", "last_started_collective",
                                                   "last_completed_collective"));
  std::uint64_t record = 0;
  for (const Json& e : dump.at("entries")) {
    std::set<std::string> names = keys(e);
    EXPECT_EQ(names.erase("duration_ms"), e.at("state") == "completed" ? 1u : 0u);
    EXPECT_THAT(names, UnorderedElementsAre("record_id", "pg_id", "process_group", "thread_name", "thread_id",
                                            "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name",
                                            "time_created_ns", "input_sizes", "input_dtypes", "output_sizes",
                                            "output_dtypes", "state", "time_discovered_started_ns",
                                            "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p",
                                            "frames"));
    EXPECT_EQ(e.at("record_id"), record++);
    for (const char* name : {"pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "time_created_ns",
                             "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms"})
      EXPECT_TRUE(e.at(name).is_number_integer()) << name;
    EXPECT_TRUE(dump.at("pg_config").contains(e.at("process_group").at(0))) << e;
    EXPECT_TRUE(e.at("profiling_name").get<std::string>().starts_with("nccl:")) << "the analyser insists";
    for (const char* name : {"input_sizes", "output_sizes"}) {
      ASSERT_EQ(e.at(name).size(), 1u);
      EXPECT_TRUE(e.at(name).at(0).at(0).is_number_unsigned());
    }
    EXPECT_TRUE(std::set<std::string>({"scheduled", "started", "completed"}).count(e.at("state")) == 1);
    EXPECT_TRUE(e.at("retired").is_boolean() && e.at("is_p2p").is_boolean());
    for (const Json& frame : e.at("frames"))
      EXPECT_THAT(keys(frame), UnorderedElementsAre("name", "filename", "line"));
  }
}

std::vector<Json> dump(const std::vector<RankFlights>& ranks) {
  auto dumps = flight_dump(two_groups(), scheduler::LaneTable(),
                           {static_cast<std::uint32_t>(ranks.size()), ranks}, Nanos(1'000'000));
  for (const Json& each : dumps) expect_schema(each);
  return dumps;
}

std::vector<std::uint64_t> numbers(const Json& dump) {
  std::vector<std::uint64_t> all;
  for (const Json& e : dump.at("entries")) all.push_back(e.at("collective_seq_id"));
  return all;
}

TEST(FlightDump, HasWhatTheAnalyserReads) {
  using State = FlightEntry::State;
  std::vector<RankFlights> ranks(3);
  ranks[0].started = {entry(0, 1, State::kCompleted), entry(0, 2, State::kStarted),
                      entry(1, 0, State::kScheduled)};
  const Json d = dump(ranks)[0];
  ASSERT_EQ(d.at("entries").size(), 3u);
  const Json& scheduled = d.at("entries").at(0);
  EXPECT_EQ(scheduled.at("state"), "scheduled");
  EXPECT_EQ(scheduled.at("collective_seq_id"), 1) << "it waits: the next of its channel";
  const Json& completed = d.at("entries").at(1);
  EXPECT_THAT(completed.at("process_group"), ElementsAre("0:small", "world"));
  EXPECT_EQ(completed.at("profiling_name"), "nccl:all_reduce");
  EXPECT_EQ(completed.at("input_sizes"), Json::parse("[[32]]"));
  EXPECT_EQ(completed.at("input_dtypes"), Json::parse(R"(["BFloat16"])"));
  EXPECT_EQ(completed.at("duration_ms"), 0.5);
  EXPECT_EQ(completed.at("timeout_ms"), 500);
  EXPECT_EQ(completed.at("frames").at(0).at("filename"), "model.py");
  EXPECT_EQ(completed.at("frames").at(0).at("line"), 311);
  EXPECT_EQ(d.at("pg_config").at("0:small").at("ranks"), "[0, 1, 2]");
  EXPECT_EQ(d.at("pg_status").at("1").at("last_enqueued_collective"), 2);
  EXPECT_EQ(d.at("pg_status").at("1").at("last_completed_collective"), 1);
}

TEST(FlightDump, JoinsBothPathsAndKeepsTheirOrder) {
  std::vector<RankFlights> ranks(3);
  ranks[2].started = {entry(1, 1, FlightEntry::State::kCompleted)};
  ranks[2].run = {flight(0, 2, 1, MUSTER_BARRIER, 1), flight(0, 2, 20, MUSTER_ALL_GATHER, 2)};
  ranks[2].run[1].state = shm::DirectRecord::State::kOpen;
  const Json d = dump(ranks)[2];
  std::vector<std::string> names;
  for (const Json& e : d.at("entries")) names.push_back(e.at("profiling_name"));
  EXPECT_THAT(names, ElementsAre("nccl:barrier", "nccl:all_reduce", "nccl:all_gather"));
  // The end of what was run is found out when the next begins, at the latest.
  EXPECT_EQ(d.at("entries").at(0).at("time_discovered_completed_ns"), 2000);
  EXPECT_EQ(d.at("entries").at(2).at("state"), "started");
  EXPECT_EQ(d.at("entries").at(2).at("time_discovered_completed_ns"), 0);
}

// Goal:   the sides of a message meet in a group of two, by direction and number.
TEST(FlightDump, MatchesSendsAndReceives) {
  std::vector<RankFlights> ranks(3);
  DirectRecords::Flight send =
      flight(1, 1, 1, MUSTER_SEND, 4);  // rank 2 is member 1 of tp, and sends to rank 0
  DirectRecords::Flight receive = flight(1, 0, 1, MUSTER_RECV, 4);
  receive.what.peer = 1;
  ranks[2].run = {send};
  ranks[0].run = {receive};
  const auto dumps = dump(ranks);
  const Json& sent = dumps[2].at("entries").at(0);
  const Json& received = dumps[0].at("entries").at(0);
  EXPECT_EQ(sent.at("profiling_name"), "nccl:send 1->0");
  EXPECT_EQ(received.at("profiling_name"), "nccl:recv 0<-1");
  EXPECT_EQ(sent.at("process_group"), received.at("process_group"));
  EXPECT_EQ(dumps[2].at("pg_config").at("1:direct:2>0").at("ranks"), "[0, 2]");
  EXPECT_EQ(sent.at("p2p_seq_id"), 4);
  EXPECT_EQ(received.at("p2p_seq_id"), 4);
}

// Goal:   a record that one member's ring has lost does not look as if that member had not come.
TEST(FlightDump, LeavesOutWhatAnotherMemberCanNoLongerShow) {
  using State = FlightEntry::State;
  std::vector<RankFlights> ranks(3);
  for (std::uint64_t n = 1; n <= 4; ++n) {
    ranks[0].started.push_back(entry(1, n, n < 4 ? State::kCompleted : State::kStarted));
    if (n >= 3) ranks[2].started.push_back(entry(1, n, State::kCompleted));
  }
  EXPECT_THAT(numbers(dump(ranks)[0]), ElementsAre(1, 2, 3, 4)) << "rank 2 has lost nothing: it did not come";
  ranks[2].lost = true;
  EXPECT_THAT(numbers(dump(ranks)[0]), ElementsAre(3, 4));
  ranks[2].started.pop_back();
  EXPECT_THAT(numbers(dump(ranks)[0]), ElementsAre(3, 4)) << "what is not over stays";
}

TEST(FlightDump, GivesEveryOperationANameAndShapesThatMatch) {
  // The names that the analyser knows: torch/distributed/flight_recorder/components/types.py.
  const std::set<std::string> known = {
      "broadcast", "reduce",  "all_gather", "all_reduce", "reduce_scatter", "_all_gather_base",
      "gather",    "scatter", "all_to_all", "barrier",    "send 0->1",      "REDUCE_SCATTER_coalesced",
      "recv 1<-0"};
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST,
                             MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE,
                             MUSTER_BARRIER, MUSTER_SEND, MUSTER_RECV}) {
    for (const bool uneven : {false, true}) {
      std::vector<RankFlights> ranks(3);
      DirectRecords::Flight f = flight(0, op == MUSTER_RECV ? 1 : 0, 1, op, 1);
      f.uneven = uneven;
      f.what.peer = op == MUSTER_SEND ? 1 : 0;
      ranks[0].run = {f};
      const std::string name = dump(ranks)[0].at("entries").at(0).at("profiling_name");
      EXPECT_EQ(known.count(name.substr(5)), 1u) << name;
    }
  }
}

// ---- the log behind it -------------------------------------------------------------------------

class FlightLogOf : public ::testing::Test {
 protected:
  scheduler::Request request(std::uint64_t value, std::uint32_t lane = MUSTER_LANE_SMALL) {
    Collective what;
    what.op = MUSTER_ALL_REDUCE;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_SUM;
    what.count = 4;
    const Share share = *make_share(what, 0, 2, {});
    plan_.work = scheduler::CollectiveWork{GroupId(0), what, share, signature_of(what, share, 2), "a:1"};
    return {Rank(0), lane, value, &plan_, {}, Nanos(1000)};
  }
  scheduler::Plan plan_;
  FlightLog log_{1};
};

TEST_F(FlightLogOf, FollowsAStartFromItsSubmissionToItsEnd) {
  log_.submitted(request(1), Nanos(5));
  EXPECT_EQ(log_.entries(Rank(0)).at(0).state, FlightEntry::State::kScheduled);
  log_.launched({{{Rank(0), MUSTER_LANE_SMALL, 1, &plan_}}}, 9, Nanos(7));
  const FlightEntry* over = log_.retired(Rank(0), MUSTER_LANE_SMALL, 1, true, 9, Nanos(11));
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->number, 9u);
  EXPECT_EQ(over->created, Nanos(5));
  EXPECT_EQ(over->started, Nanos(7));
  EXPECT_EQ(over->completed, Nanos(11));
  EXPECT_EQ(over->timeout, Nanos(1000));
  EXPECT_STREQ(over->site.data(), "a:1");
  EXPECT_EQ(over->target_bytes, 16u);
}

// Goal:   only the first of the starts that fail together was an operation that others may have met.
TEST_F(FlightLogOf, KeepsOnlyTheFirstOfAFailedQueue) {
  for (std::uint64_t value = 1; value <= 3; ++value) log_.submitted(request(value), Nanos(5));
  for (const std::uint64_t value : {3, 2, 1})
    log_.retired(Rank(0), MUSTER_LANE_SMALL, value, false, 4, Nanos(9));
  const auto entries = log_.entries(Rank(0));
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].number, 4u);
  EXPECT_EQ(entries[0].state, FlightEntry::State::kFailed);
}

// Goal:   both sides of a message have one number for it, whatever one of them lost or forgot before.
TEST(FlightLog, NumbersMessagesWhereBothSidesMeet) {
  FlightLog log(2);
  std::vector<scheduler::Plan> plans(2);
  for (const std::int32_t index : {0, 1}) {
    Collective what;
    what.op = index == 0 ? MUSTER_SEND : MUSTER_RECV;
    what.dtype = MUSTER_U8;
    what.root = 0;
    what.receiver = 1;
    what.count = 4;
    const Share share = *make_share(what, index, 2, {});
    plans[static_cast<std::size_t>(index)].work =
        scheduler::CollectiveWork{GroupId(3), what, share, signature_of(what, share, 2), ""};
  }
  std::array<std::uint64_t, 2> value{};
  const auto submit = [&](std::uint32_t rank) {
    log.submitted({Rank(rank), MUSTER_LANE_HALO, ++value[rank], &plans[rank], {}, Nanos(1000)}, Nanos(5));
  };
  const auto meet = [&] {
    submit(0);
    submit(1);
    log.launched({{{Rank(0), MUSTER_LANE_HALO, value[0], &plans[0]},
                   {Rank(1), MUSTER_LANE_HALO, value[1], &plans[1]}}},
                 0, Nanos(7));
  };
  const auto latest = [&](std::uint32_t rank) { return log.entries(Rank(rank)).back().number; };
  meet();
  submit(0);
  log.retired(Rank(0), MUSTER_LANE_HALO, value[0], false, 0, Nanos(8));
  EXPECT_EQ(latest(0), 2u) << "of which the receiver knows nothing";
  log.attached(Rank(1));
  meet();
  EXPECT_EQ(latest(0), 3u);
  EXPECT_EQ(latest(1), 3u);
  log.forget(GroupId(3));
  EXPECT_TRUE(log.entries(Rank(0)).empty());
  meet();
  EXPECT_EQ(latest(0), 1u) << "another group's";
}

TEST_F(FlightLogOf, KeepsTheLatestOfEachLane) {
  constexpr std::uint64_t kStarts = FlightLog::kEntriesPerLane + 10;
  for (std::uint64_t value = 1; value <= kStarts; ++value)
    log_.submitted(request(value), Nanos(static_cast<std::int64_t>(value)));
  EXPECT_TRUE(log_.overwritten(Rank(0)));
  const auto entries = log_.entries(Rank(0));
  ASSERT_EQ(entries.size(), FlightLog::kEntriesPerLane);
  EXPECT_EQ(entries.front().value, 11u);
  EXPECT_EQ(entries.back().value, kStarts);
  EXPECT_EQ(log_.retired(Rank(0), MUSTER_LANE_SMALL, 1, true, 1, Nanos(1)), nullptr) << "long gone";
  log_.attached(Rank(0));
  EXPECT_TRUE(log_.entries(Rank(0)).empty());
}

}  // namespace
}  // namespace muster::engine
