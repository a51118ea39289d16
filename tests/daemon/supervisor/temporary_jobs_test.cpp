// Jobs of several nodes that a user asks for, by the daemon of one of them.
#include "daemon/control/link/frame.hpp"
#include "daemon/supervisor/peers/liveness.hpp"
#include "tests/daemon/supervisor/cluster_fixture.hpp"
#include "tests/support/folder.hpp"

#include <array>
#include <csignal>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class TemporaryJobsTest : public ClusterTest {
 protected:
  // Nodes that know each other, and have no job.
  void start(std::size_t count, Nanos linger = Options().made_job_linger, const char* tie_breaker = "") {
    prepare(count);
    for (const auto& node : nodes_) {
      node->options.jobs.clear();
      node->options.made_job_linger = linger;
    }
    have_tie_breaker(tie_breaker);
    start_all();
    ASSERT_TRUE(until([&] {
      for (std::size_t n = 0; n < count; ++n)
        for (std::size_t other = 0; other < count; ++other)
          if (n != other && peer(n, other).at("state") != "up") return false;
      return true;
    }));
  }
  static Json wish(const Json& nodes, int world, const char* mesh) {
    return {{"command", "job_create"},
            {"spec", {{"name", "train"}, {"world", world}, {"mesh", mesh}, {"claim", "owner"}}},
            {"nodes", nodes}};
  }
  static Json of_all(std::size_t count) {
    Json nodes = Json::array();
    for (std::size_t n = 0; n < count; ++n) nodes.push_back({{"node", name(n)}, {"ranks", kRanksOfANode}});
    return nodes;
  }
  // A connection on which the job depends.
  shm::Descriptor owner(std::size_t n) const {
    auto socket = shm::connect_to(nodes_[n]->endpoint(), soon(), clock_);
    EXPECT_TRUE(socket) << socket.error().text();
    return *std::move(socket);
  }
  Result<Json> ask_on(const shm::Descriptor& owner, const Json& command) const {
    MUSTER_RETURN_IF_ERROR(control::send_packet(owner, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(owner, soon(), clock_));
    return control::result_of(answer);
  }
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }
};

// Goal:   a job is there on all nodes when its maker hears of it, works, and ends with its maker.
TEST_F(TemporaryJobsTest, LastAsLongAsTheirMaker) {
  start(3, Options().made_job_linger, "node2");
  for (const std::size_t leader : {0u, 2u, 1u}) {
    auto maker = owner(leader);
    const auto made = ask_on(maker, wish(of_all(3), 6, "dp_replicate=3,tp=2"));
    ASSERT_TRUE(made) << made.error().text();
    ASSERT_TRUE(until_ready());
    EXPECT_EQ(made->at("epoch"), epoch_at(leader));
    expect_tie_breaker("node2");
    const auto twice = ask(leader, wish(of_all(3), 6, "dp_replicate=3,tp=2"));
    ASSERT_FALSE(twice);
    EXPECT_EQ(twice.error().code(), Code::kDuplicate);
    expect_works();
    maker.reset();
    ASSERT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty() && job_at(2).empty(); }));
    for (const std::size_t n : {0u, 1u, 2u})
      EXPECT_TRUE(until([&] { return waiting(n).empty(); })) << waiting(n);
  }
}

// Goal:   nothing of a job that cannot be had is left on any node, and its maker hears why.
TEST_F(TemporaryJobsTest, SayWhyTheyCannotBeMade) {
  prepare(3);
  for (const auto& node : nodes_) node->options.jobs.clear();
  nodes_[1]->options.ranks_per_job_max = 1;
  nodes_[0]->start();
  nodes_[1]->start();
  ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up"; }));
  const auto two = [](const char* one, int ranks, const char* other) {
    return Json::array({{{"node", one}, {"ranks", ranks}}, {{"node", other}, {"ranks", 2}}});
  };
  Json kept = wish(two("node0", 2, "node1"), 4, "tp=4");
  kept["keep"] = true;
  Json long_one = wish(two("node0", 2, "node1"), 4, "tp=4");
  const Json many(std::vector<std::string>(control::kOfFrames.items_max, ""));
  long_one["spec"]["flatten"] = Json::array({{{"name", "all"}, {"dims", many}}});
  const struct {
    Json asked;
    Code code;
    const char* why;
  } cases[] = {
      {wish(two("node0", 2, "node1"), 4, "tp=4"), Code::kNoResource, "limits.ranks_per_job_max"},
      {wish(two("node0", 2, "node2"), 4, "tp=4"), Code::kBusy,
       "job train needs node node2: node node2 is away"},
      {wish(two("node0", 2, "node7"), 4, "tp=4"), Code::kBadArgument, "node7 is no host"},
      {wish(two("node1", 2, "node2"), 4, "tp=4"), Code::kBadArgument, "start it on one of them"},
      {wish(two("node0", 2, "node0"), 4, "tp=4"), Code::kBadArgument, "node0"},
      {wish(two("node0", 3, "node1"), 4, "tp=4"), Code::kBadArgument, "5 ranks together"},
      {wish(two("node0", 0, "node1"), 2, "tp=2"), Code::kBadArgument, "ranks from 1"},
      {wish(Json::array({{{"node", "node0"}, {"ranks", 2}}}), 2, "tp=2"), Code::kBadArgument, "one node"},
      {wish("node0", 2, "tp=2"), Code::kBadArgument, "must be a list"},
      {wish(Json::array({"node0", "node1"}), 2, "tp=2"), Code::kBadArgument, "a name"},
      {kept, Code::kBadArgument, "cluster file"},
      {long_one, Code::kNoResource, "does not fit into a message between nodes"}};
  for (const auto& one : cases) {
    const auto made = ask_on(owner(0), one.asked);
    ASSERT_FALSE(made) << one.why;
    EXPECT_EQ(made.error().code(), one.code) << made.error().text();
    EXPECT_THAT(made.error().message(), HasSubstr(one.why));
    EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty(); })) << one.why;
  }
  EXPECT_TRUE(until([this] { return waiting(0).empty() && waiting(1).empty(); })) << waiting(0) << waiting(1);
}

// Goal:   a temporary job outlives an engine, and a node that has forgotten it; but not all of them.
TEST_F(TemporaryJobsTest, TakeBackWhatWasLost) {
  start(3);
  const auto maker = owner(1);
  const auto made = ask_on(maker, wish(of_all(3), 6, "dp_replicate=3,tp=2"));
  ASSERT_TRUE(made) << made.error().text();
  const std::uint64_t epoch = epoch_at(1);
  for (const std::size_t lost : {0u, 1u, 2u}) {
    const auto died = job(lost).at("engine_pid").get<std::int32_t>();
    ASSERT_EQ(kill(died, SIGKILL), 0);
    ASSERT_TRUE(until([&] {
      const Json there = job(lost);
      return !there.is_null() && there.at("engine_pid") != died && there.at("state") == "ready";
    })) << lost
        << waiting(lost);
    for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(until([&] { return waiting(n).empty(); })) << waiting(n);
  }
  for (const std::size_t lost : {0u, 2u}) {
    lose(lost);
    nodes_[lost]->options.jobs.clear();
    nodes_[lost]->start();
    ASSERT_TRUE(until_ready()) << waiting(lost);
    for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(until([&] { return waiting(n).empty(); })) << waiting(n);
  }
  EXPECT_EQ(epoch_at(0), epoch);
  expect_works();
  // The maker's daemon has gone, and so has the maker.
  lose(1);
  nodes_[1]->options.jobs.clear();
  nodes_[1]->start();
  ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up"; }));
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty() && job_at(2).empty(); }))
      << waiting(0) << waiting(1) << waiting(2);
}

// Goal:   a job whose maker's node never returns goes on for the ranks that are there, and ends after them.
// Method: while its maker is there, a job stays though it has no rank.
TEST_F(TemporaryJobsTest, EndAfterTheirRanksIfTheirMakersNodeIsAway) {
  start(3, 200ms);
  auto maker = owner(1);
  ASSERT_TRUE(ask_on(maker, wish(of_all(3), 6, "dp_replicate=3,tp=2")));
  const std::uint64_t epoch = epoch_at(0);
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(epoch_at(2), epoch);
  muster_session* session = nullptr;
  ASSERT_EQ(open(2, 4, &session), MUSTER_OK) << muster_last_error();
  nodes_[1] = nullptr;
  std::this_thread::sleep_for(Liveness::kLostAfter + 800ms);
  EXPECT_EQ(epoch_at(0), epoch) << "a rank is on another node";
  EXPECT_EQ(epoch_at(2), epoch);
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(2).empty(); })) << waiting(0) << waiting(2);
  EXPECT_TRUE(until([this] { return waiting(0).empty() && waiting(2).empty(); })) << waiting(0) << waiting(2);
}

// Goal:   a job ends with its maker also while its maker's node has no engine of it.
TEST_F(TemporaryJobsTest, EndWithTheirMakerWhileItsPartIsAway) {
  start(2);
  auto maker = owner(1);
  ASSERT_TRUE(ask_on(maker, wish(of_all(2), 4, "dp_replicate=2,tp=2")));
  ASSERT_EQ(kill(job(1).at("engine_pid").get<std::int32_t>(), SIGKILL), 0);
  ASSERT_TRUE(until([this] { return job_at(1).empty(); })) << "it begins again in two seconds";
  maker.reset();
  ASSERT_TRUE(until([this] { return job_at(0).empty(); })) << waiting(0);
  std::this_thread::sleep_for(SpanningPart::kRetry + 500ms);
  for (const std::size_t n : {0u, 1u}) {
    EXPECT_EQ(job_at(n), "") << n;
    EXPECT_EQ(waiting(n), "") << n;
  }
}

// Goal:   a job, of any requester, may follow one of the same name whose part still ends on one of its nodes.
//         It does not come any more if it was given up meanwhile.
// Method: the engine of that node is stopped, so it ends late.
TEST_F(TemporaryJobsTest, FollowAnEarlierOneOfTheirNameThatStillEnds) {
  start(3);
  const auto of = [](std::size_t leader) {
    return Json::array({{{"node", name(leader)}, {"ranks", 2}}, {{"node", "node1"}, {"ranks", 2}}});
  };
  for (const std::size_t leader : {0u, 2u}) {
    SCOPED_TRACE(leader);
    for (const bool given_up : {true, false}) {
      auto earlier = owner(0);
      ASSERT_TRUE(ask_on(earlier, wish(of(0), 4, "dp_replicate=2,tp=2")));
      const auto engine = job(1).at("engine_pid").get<std::int32_t>();
      ASSERT_EQ(kill(engine, SIGSTOP), 0);
      earlier.reset();
      ASSERT_TRUE(until([this] { return job_at(0).empty() && job_at(1) == "ending"; }));
      Json command = wish(of(leader), 4, "dp_replicate=2,tp=2");
      if (given_up) command["wait_ns"] = 500'000'000;
      auto maker = owner(leader);
      ASSERT_TRUE(control::send_packet(maker, shm::MessageKind::kCommand, 1, command).ok());
      ASSERT_TRUE(until([&] { return !job_at(leader).empty(); }));
      if (given_up) ASSERT_TRUE(until([&] { return job_at(leader).empty(); }));
      ASSERT_EQ(kill(engine, SIGCONT), 0);
      const auto answer = control::receive_packet(maker, soon(), clock_);
      ASSERT_TRUE(answer) << answer.error().text();
      const Status made = control::status_of(answer->body);
      EXPECT_EQ(made.code(), given_up ? Code::kTimeout : Code::kOk) << made.text();
      if (!given_up) EXPECT_EQ(epoch_at(1), epoch_at(leader));
      maker.reset();
      for (const std::size_t n : {leader, std::size_t{1}}) {
        EXPECT_TRUE(until([&] { return job_at(n).empty() && waiting(n).empty(); })) << waiting(n);
      }
    }
  }
}

// Goal:   a job whose name another one has on one of its nodes is refused at once, and that one goes on.
TEST_F(TemporaryJobsTest, AreRefusedWhereTheirNameIsTaken) {
  start(3);
  const auto maker = owner(0);
  const auto pair = [](const char* leader) {
    return Json::array({{{"node", leader}, {"ranks", 2}}, {{"node", "node1"}, {"ranks", 2}}});
  };
  ASSERT_TRUE(ask_on(maker, wish(pair("node0"), 4, "dp_replicate=2,tp=2")));
  const std::uint64_t epoch = epoch_at(1);
  const auto made = ask_on(owner(2), wish(pair("node2"), 4, "dp_replicate=2,tp=2"));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kDuplicate) << made.error().text();
  EXPECT_THAT(made.error().message(), HasSubstr("node node1: job train exists; end it"));
  EXPECT_TRUE(until([this] { return job_at(2).empty() && waiting(2).empty(); })) << waiting(2);
  EXPECT_EQ(epoch_at(1), epoch);
  EXPECT_EQ(job_at(1), "ready");
}

// Nodes of which the given one has a single place, and a rank of job "other" there that holds it.
class FullNodeTest : public TemporaryJobsTest {
 protected:
  void start_full(std::size_t full, Nanos linger = Options().made_job_linger) {
    full_ = full;
    prepare(2);
    for (const auto& node : nodes_) {
      node->options.jobs.clear();
      node->options.made_job_linger = linger;
    }
    nodes_[full]->options.jobs_max = 1;
    start_all();
    ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up" && peer(1, 0).at("state") == "up"; }));
    const auto options = nodes_[full]->rank("other", 0, 1, "dp_shard=1");
    ASSERT_EQ(muster_open(&options, &holder_), MUSTER_OK) << muster_last_error();
  }
  void TearDown() override { leave_place(); }
  // Its job stays a moment longer, unless it is in the way.
  void leave_place() {
    if (holder_ != nullptr) EXPECT_EQ(muster_close(std::exchange(holder_, nullptr)), MUSTER_OK);
  }
  void send(const shm::Descriptor& owner) const {
    const Status sent =
        control::send_packet(owner, shm::MessageKind::kCommand, 1, wish(of_all(2), 4, "dp_replicate=2,tp=2"));
    ASSERT_TRUE(sent.ok()) << sent.text();
  }
  Result<Json> answer(const shm::Descriptor& owner) const {
    MUSTER_ASSIGN_OR_RETURN(const auto packet, control::receive_packet(owner, soon(), clock_));
    return control::result_of(packet);
  }
  bool waits_for_place() const {
    return until([this] {
      return waiting(full_).find("waits for a place on this node: there are 1 jobs, the limit") !=
             std::string::npos;
    });
  }
  bool nothing_is_left(std::size_t n) const {
    return until([&] { return waiting(n).empty() && job_at(n).empty(); });
  }

  std::size_t full_ = 0;
  muster_session* holder_ = nullptr;
};

TEST_F(FullNodeTest, GivesThePlaceOnceTheLastRankOfAnotherJobHasLeft) {
  for (const std::size_t full : {1u, 0u}) {
    SCOPED_TRACE(full);
    start_full(full);
    const auto owner_socket = owner(0);
    send(owner_socket);
    ASSERT_TRUE(waits_for_place());
    leave_place();
    const auto made = answer(owner_socket);
    ASSERT_TRUE(made) << made.error().text();
    expect_works();
    nodes_.clear();
    roster_ = {};
  }
}

TEST_F(FullNodeTest, RefusesAJobThatGetsNoPlace) {
  start_full(1);
  const auto owner_socket = owner(0);
  send(owner_socket);
  const auto made = answer(owner_socket);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kNoResource) << made.error().text();
  EXPECT_THAT(made.error().message(), HasSubstr("node node1: there are 1 jobs, the limit"));
  for (const std::size_t n : {0u, 1u}) EXPECT_TRUE(nothing_is_left(n)) << n << waiting(n);
}

// Goal:   a requester that leaves while its job waits for a place leaves nothing behind: neither a part that
//         waits, nor a job that is made when the place is there.
TEST_F(FullNodeTest, MakesNoJobForARequesterThatHasLeft) {
  start_full(0);
  auto owner_socket = owner(0);
  send(owner_socket);
  ASSERT_TRUE(waits_for_place());
  owner_socket = {};
  leave_place();
  for (const std::size_t n : {0u, 1u}) EXPECT_TRUE(nothing_is_left(n)) << n << waiting(n);
}

// Goal:   ranks that come while their job waits for a place wait with it.
TEST_F(FullNodeTest, LetsRanksWaitWithTheirJob) {
  start_full(1);
  const auto owner_socket = owner(0);
  send(owner_socket);
  ASSERT_TRUE(waits_for_place());
  std::thread early([this] {
    muster_session* session = nullptr;
    EXPECT_EQ(open(1, 2, &session), MUSTER_OK) << muster_last_error();
    if (session != nullptr) EXPECT_EQ(muster_close(session), MUSTER_OK);
  });
  ASSERT_TRUE(until([this] {
    const Json said = status(1);
    return said.at("users").at(0).at("sessions").get<int>() == 2;  // with the rank that holds the place
  })) << status(1).dump(1);
  leave_place();
  EXPECT_TRUE(answer(owner_socket));
  early.join();
}

// Goal:   of two jobs that want the same two places one gets them, though each node may ask for the other
// first.
TEST_F(TemporaryJobsTest, DoNotAllGiveUpForEachOther) {
  prepare(2);
  for (const auto& node : nodes_) {
    node->options.jobs.clear();
    node->options.jobs_max = 1;
  }
  start_all();
  ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up" && peer(1, 0).at("state") == "up"; }));
  for (int round = 0; round < 5; ++round) {
    const std::array owners{owner(0), owner(1)};
    for (std::size_t n = 0; n < owners.size(); ++n) {
      Json command = wish(of_all(2), 4, "dp_replicate=2,tp=2");
      command["spec"]["name"] = fmt::format("job{}", n);
      ASSERT_TRUE(control::send_packet(owners[n], shm::MessageKind::kCommand, 1, command).ok());
    }
    std::string told;
    int made = 0;
    for (const auto& each : owners) {
      const auto packet = control::receive_packet(each, soon(), clock_);
      ASSERT_TRUE(packet) << packet.error().text();
      const auto result = control::result_of(*packet);
      made += result ? 1 : 0;
      told += result ? "made; " : result.error().text() + "; ";
    }
    EXPECT_EQ(made, 1) << told;
    for (const auto& each : owners) shutdown(each.get(), SHUT_RDWR);
    ASSERT_TRUE(until([this] {
      for (const std::size_t n : {0u, 1u})
        if (!status(n).at("jobs").empty() || !waiting(n).empty()) return false;
      return true;
    })) << waiting(0)
        << waiting(1);
  }
}

// Goal:   the requester learns which node is too slow before it stops waiting, and nothing of the job stays.
// Method: the engine of one node never answers.
TEST_F(TemporaryJobsTest, AreGivenUpBeforeTheirMakerStopsWaiting) {
  prepare(2);
  for (const auto& node : nodes_) node->options.jobs.clear();
  const test::Folder folder;
  nodes_[1]->options.engine_program = folder.write("engine", "#!/bin/sh\nexec sleep 2\n");
  ASSERT_EQ(chmod(nodes_[1]->options.engine_program.c_str(), 0700), 0);
  start_all();
  ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up"; }));
  Json command = wish(of_all(2), 4, "dp_replicate=2,tp=2");
  command["wait_ns"] = 500'000'000;
  const auto made = ask_on(owner(0), command);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kTimeout) << made.error().text();
  EXPECT_THAT(made.error().message(), HasSubstr("node1 has not started yet, after 0.5 s"));
  EXPECT_TRUE(until([this] { return job_at(0).empty() && waiting(0).empty(); })) << waiting(0);
  EXPECT_TRUE(until([this] { return job_at(1).empty() && waiting(1).empty(); })) << waiting(1);
}

}  // namespace
}  // namespace muster::supervisor
