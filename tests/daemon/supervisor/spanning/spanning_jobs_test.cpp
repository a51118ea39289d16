#include "daemon/supervisor/spanning/spanning_jobs.hpp"

#include "api/base/mesh/group_list.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"
#include "tests/daemon/supervisor/cluster_fixture.hpp"

#include <atomic>
#include <csignal>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

namespace muster::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A node that says what the test wants.
//
// Owns    its connections; to destroy it is its death.
// Thread  the test's.
// Bound   -
// Fails   the test.
class Puppet {
 public:
  explicit Puppet(const Options& options)
      : options_(options),
        peers_(loop_, clock_, options_,
               {.jobs = [] { return Json::array(); },
                .up = [](const std::string&, const Json&) {},
                .down = [](const std::string&, const Status&) {},
                .heard = [this](const std::string&, const Json& message) { heard_.push_back(message); }}) {
    const Status opened = peers_.open();
    EXPECT_TRUE(opened.ok()) << opened.text();
  }
  void live() {
    while (loop_.turn()) {
    }
  }
  bool knows(const std::string& peer) const { return peers_.is_up(peer); }
  // The steps that it has received since the last call.
  std::vector<std::string> steps() {
    std::vector<std::string> all;
    for (const Json& message : std::exchange(heard_, {})) all.push_back(message.value("step", ""));
    return all;
  }
  // Takes the first message of that step, and all before it.
  std::optional<Json> hears(const std::string& step) {
    live();
    while (!heard_.empty()) {
      Json message = std::move(heard_.front());
      heard_.erase(heard_.begin());
      if (message.value("step", "") == step) return message;
    }
    return std::nullopt;
  }
  void say(const std::string& peer, std::uint64_t epoch, const char* step, const Json& more) {
    Json message{{"job", "train"}, {"epoch", epoch}, {"step", step}};
    message.update(more);
    EXPECT_TRUE(peers_.send(peer, message));
    live();
  }

 private:
  const Options options_;
  const SteadyClock clock_;
  control::Loop loop_;
  Peers peers_;
  std::vector<Json> heard_;
};

Json bytes(std::size_t count) {
  return Json::binary(std::vector<std::uint8_t>(count, 7));
}

class SpanningTest : public ClusterTest {
 protected:
  Puppet& puppet(std::size_t n) {
    auto& made = puppets_[n] = std::make_unique<Puppet>(nodes_[n]->options);
    return *made;
  }
  bool until(const std::function<bool()>& done) const {
    return ClusterTest::until([&] {
      for (const auto& [n, puppet] : puppets_) puppet->live();
      return done();
    });
  }
  // The epoch of the next attempt that the leader begins.
  std::uint64_t asked(Puppet& puppet) const {
    const Json prepare = awaited(puppet, "prepare");
    return prepare.is_null() ? 0 : prepare.at("epoch").get<std::uint64_t>();
  }
  Json awaited(Puppet& puppet, const std::string& step) const {
    std::optional<Json> message;
    EXPECT_TRUE(until([&] { return (message = puppet.hears(step)).has_value(); })) << step;
    return message.value_or(Json());
  }
  // The answer of a node whose engine stands, and lists the same groups.
  Json prepared(const Json& address = nullptr) const {
    const control::JobSpec& job = nodes_[0]->options.jobs.front();
    const auto mesh = mesh::Mesh::build(*mesh::Degrees::parse(job.mesh), job.world.size(), {});
    Json said{{"groups", mesh::GroupList(*mesh).hash().hex()}};
    if (!address.is_null()) said["address"] = address;
    return said;
  }
  // In place of the puppet, if there is one.
  void start(std::size_t n) {
    puppets_.erase(n);
    nodes_[n]->start();
  }

  std::map<std::size_t, std::unique_ptr<Puppet>> puppets_;
};

TEST_F(SpanningTest, ConnectsItsEnginesBeforeItCommits) {
  prepare(3);
  start(0);
  start(1);
  Puppet& third = puppet(2);
  const std::uint64_t epoch = asked(third);
  ASSERT_TRUE(until([this] { return waiting(0).find("node2 has not started") != std::string::npos; }));
  EXPECT_THAT(waiting(1), HasSubstr("other nodes may not have started"));
  third.say("node0", epoch, "connected", Json::object());  // nobody has asked yet
  third.say("node0", epoch, "prepared", prepared(bytes(3)));
  const Json connect = awaited(third, "connect");
  EXPECT_EQ(connect.at("epoch"), epoch);
  EXPECT_THAT(connect.at("addresses"), ElementsAre(bytes(0), bytes(0), bytes(3))) << "by node";
  ASSERT_TRUE(until([this] { return waiting(0).find("node2 has not connected") != std::string::npos; }));
  EXPECT_THAT(waiting(0), Not(HasSubstr("more"))) << "the others have, and this one not, whatever it said";
  EXPECT_THAT(waiting(1), HasSubstr("other nodes may not have connected"));
  third.say("node0", epoch, "prepared", prepared(bytes(4)));  // too late
  EXPECT_EQ(job_at(0), "starting");
  EXPECT_EQ(job_at(1), "starting");
  const auto made =
      ask(1, {{"command", "job_create"},
              {"spec", {{"name", "train"}, {"world", 2}, {"mesh", "tp=2"}, {"claim", "owner"}}}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kBusy);
  EXPECT_THAT(made.error().message(), HasSubstr("other nodes may not have connected"));
  third.live();
  EXPECT_THAT(third.steps(), ElementsAre());
  third.say("node0", epoch, "connected", Json::object());
  ASSERT_TRUE(until([this] { return job_at(0) == "ready" && job_at(1) == "ready"; }));
  third.live();
  EXPECT_THAT(third.steps(), ElementsAre("commit"));
}

// Goal:   an answer that is wrong or bad news ends the attempt on all nodes, with its reason, and the next
//         attempt may succeed.
// Method: a node with one wrong answer after the other, and then the node itself.
TEST_F(SpanningTest, EndsAnAttemptThatANodeCannotFollow) {
  prepare(3);
  start(0);
  start(2);
  Puppet& second = puppet(1);
  const Json no_way = control::failed(Status(Code::kPeerLost, "no way to node0"));
  const struct {
    const char* step;
    Json says;
    const char* why;
  } cases[] = {{"prepared", {{"address", "10.0.0.2"}}, "must be bytes"},
               {"prepared", {{"address", bytes(control::kAddressBytesMax + 1)}}, "and 65536 are possible"},
               {"prepared", no_way, "no way to node0"},
               {"prepared", Json::object(), "other groups"},
               {"prepared", {{"groups", std::string(32, '0')}}, "the same release"},
               {"connected", no_way, "no way to node0"}};
  std::uint64_t last = 0;
  for (const auto& one : cases) {
    const std::uint64_t epoch = asked(second);
    ASSERT_NE(epoch, last);
    last = epoch;
    if (std::string(one.step) == "connected") {
      second.say("node0", epoch, "prepared", prepared());
      awaited(second, "connect");
    }
    second.say("node0", epoch, one.step, one.says);
    const Json end = awaited(second, "end");
    EXPECT_EQ(end.at("epoch"), epoch);
    EXPECT_EQ(end.at("again"), true);
    EXPECT_THAT(end.at("why").get<std::string>(), AllOf(HasSubstr("node node1: "), HasSubstr(one.why)));
    for (const std::size_t n : {0u, 2u}) {
      EXPECT_TRUE(until([&] { return epoch_at(n) != epoch; })) << one.why;
      EXPECT_THAT(waiting(n), HasSubstr(one.why)) << n;
    }
  }
  start(1);
  ASSERT_TRUE(until_ready());
  expect_works();
}

// Goal:   no node believes a leader's addresses unseen.
TEST_F(SpanningTest, TakesNoAddressesThatAreNotThoseOfItsNodes) {
  prepare(2);
  start(1);
  Puppet& first = puppet(0);
  ASSERT_TRUE(until([&] { return first.knows("node1"); }));
  std::uint64_t epoch = 100;
  const auto begin = [&] {
    ASSERT_TRUE(until([this] { return job_at(1).empty(); }));
    first.say("node1", ++epoch, "prepare", Json::object());
    EXPECT_FALSE(awaited(first, "prepared").contains("error"));
  };
  const Json large = bytes(control::kAddressBytesMax + 1);
  const std::pair<Json, const char*> cases[] = {
      {Json::object(), "must be a list"},
      {{{"addresses", "a, b"}}, "must be a list"},
      {{{"addresses", Json::array({bytes(1)})}}, "1 addresses of engines for 2 nodes"},
      {{{"addresses", Json::array({bytes(1), bytes(1), bytes(1)})}}, "3 addresses of engines for 2 nodes"},
      {{{"addresses", Json::array({bytes(1), "b"})}}, "must be bytes"},
      {{{"addresses", Json::array({bytes(1), large})}}, "and 65536 are possible"}};
  for (const auto& [says, why] : cases) {
    begin();
    first.say("node1", epoch, "connect", says);
    const Json answer = awaited(first, "connected");
    EXPECT_NE(answer.value("status", 0), 0) << why;
    EXPECT_THAT(answer.value("error", ""), HasSubstr(why));
    first.say("node1", epoch, "commit", Json::object());  // it is not ready, whatever its leader says
    first.say("node1", epoch, "end", {{"why", why}, {"again", true}});
  }
  begin();
  first.say("node1", epoch, "commit", Json::object());  // before it was to connect
  first.say("node1", epoch, "connect", {{"addresses", Json::array({bytes(1), bytes(1)})}});
  EXPECT_EQ(awaited(first, "connected").value("status", 0), 0);
  EXPECT_EQ(job_at(1), "starting");
  puppets_.clear();
  ASSERT_TRUE(until([this] { return job_at(1).empty(); }));
  EXPECT_THAT(waiting(1), HasSubstr("node0"));
  start(0);
  ASSERT_TRUE(until_ready());
  expect_works();
}

// Goal:   a loss between `connected` and `commit` ends the attempt on all nodes: of an engine, or of a node.
// Method: the last node never says that it has connected, so there is time.
TEST_F(SpanningTest, EndsAnAttemptThatLosesAnEngineOrANodeBeforeItCommits) {
  prepare(4);
  start(0);
  start(1);
  Puppet& third = puppet(2);
  Puppet& fourth = puppet(3);
  for (const bool node : {false, true}) {
    const std::uint64_t epoch = asked(third);
    ASSERT_EQ(asked(fourth), epoch);
    third.say("node0", epoch, "prepared", prepared());
    fourth.say("node0", epoch, "prepared", prepared());
    awaited(third, "connect");
    third.say("node0", epoch, "connected", Json::object());
    const auto all_but_one = [this] {
      const std::string why = waiting(0);
      return why.find("node3 has not connected") != std::string::npos &&
             why.find(" more") == std::string::npos;
    };
    ASSERT_TRUE(until(all_but_one)) << waiting(0);
    if (node)
      puppets_.erase(2);
    else
      ASSERT_EQ(kill(job(1).at("engine_pid").get<std::int32_t>(), SIGKILL), 0);
    const char* lost = node ? "node2 was lost" : "node node1: ";
    EXPECT_THAT(awaited(fourth, "end").at("why").get<std::string>(), HasSubstr(lost));
    for (const std::size_t n : {0u, 1u}) {
      EXPECT_TRUE(until([&] { return epoch_at(n) != epoch; }));
      EXPECT_THAT(waiting(n), HasSubstr(node ? "node2" : "signal 9")) << n;
    }
  }
  start(2);
  start(3);
  ASSERT_TRUE(until_ready());
  expect_works();
}

// Goal:   a rank that came early is not told that the job is over when an attempt fails, but to come again.
TEST_F(SpanningTest, TellsRanksThatWaitWhyAnAttemptHasFailed) {
  prepare(2);
  start(0);
  Puppet& second = puppet(1);
  const std::uint64_t epoch = asked(second);
  ASSERT_TRUE(until([this] { return job_at(0) == "starting"; }));
  muster_status_t opened = MUSTER_OK;
  std::string why;
  std::thread rank([&] {
    muster_session* session = nullptr;
    opened = open(0, 0, &session);
    why = muster_last_error();
  });
  EXPECT_TRUE(until([this] { return job(0).at("attached") == 1; }));
  second.say("node0", epoch, "prepared", control::failed(Status(Code::kNoResource, "no room for its ranks")));
  rank.join();
  EXPECT_EQ(opened, MUSTER_ERR_BUSY);
  EXPECT_THAT(why, AllOf(HasSubstr("node node1: no room for its ranks"), HasSubstr("try again")));
}

// A job that only its ranks keep, made by node 0.
class DesertedTest : public SpanningTest {
 protected:
  static constexpr std::uint64_t kEpoch = 7;

  void start() {
    prepare(2);
    control::JobSpec spec = nodes_[0]->options.jobs.front();
    spec.asked_on = "node0";
    spec.gathered = true;
    nodes_[1]->options.jobs.clear();
    nodes_[1]->options.made_job_linger = std::chrono::milliseconds(20);
    SpanningTest::start(1);
    first_ = &puppet(0);
    ASSERT_TRUE(until([this] { return first_->knows("node1"); }));
    wish_ = request_of(spec);
    say("prepare", {{"wish", wish_}});
    awaited(*first_, "prepared");
    say("connect", {{"addresses", Json::array({bytes(1), bytes(1)})}});
    awaited(*first_, "connected");
    say("commit", Json::object());
    ASSERT_TRUE(until([this] { return job_at(1) == "ready"; }));
    EXPECT_TRUE(vacancy_said("vacant"));
  }
  void say(const char* step, const Json& more) { first_->say("node1", kEpoch, step, more); }
  void ask_for_its_end() { say("closing", {{"vacant", true}}); }
  bool vacancy_said(const char* step) const { return awaited(*first_, step).value("vacant", false); }
  // Rank 2 comes, and has waited for a while.
  void come() {
    rank_ = std::thread([this] {
      auto options = nodes_[1]->rank("train", 2, 4);
      options.timeout_ns = 1'500'000'000;
      opened_ = muster_open(&options, &session_);
      why_ = muster_last_error();
      is_over_ = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }

  Puppet* first_ = nullptr;
  Json wish_;
  std::thread rank_;
  muster_session* session_ = nullptr;
  std::atomic<bool> is_over_{false};
  muster_status_t opened_ = MUSTER_OK;
  std::string why_;
};

// Goal:   a rank that comes while the nodes ask each other whether any rank is there waits, and is attached
//         once one node has said no. The node with that rank says no from then on.
TEST_F(DesertedTest, GoesOnIfARankComesInTime) {
  start();
  ask_for_its_end();
  EXPECT_TRUE(vacancy_said("closed"));
  come();
  EXPECT_FALSE(is_over_);
  EXPECT_EQ(job_at(1), "ready");
  say("reopen", {{"vacant", false}});
  rank_.join();
  EXPECT_EQ(opened_, MUSTER_OK) << why_;
  EXPECT_EQ(epoch_at(1), kEpoch);
  ask_for_its_end();
  EXPECT_FALSE(vacancy_said("closed"));
  EXPECT_EQ(muster_close(session_), MUSTER_OK);
}

// Goal:   a rank that comes too late is not told that its job has ended: it waits for the other ranks of a
//         new one.
TEST_F(DesertedTest, EndsBeforeARankThatWaitsMeetsOthersAgain) {
  start();
  ask_for_its_end();
  EXPECT_TRUE(vacancy_said("closed"));
  come();
  EXPECT_FALSE(is_over_);
  say("end", {{"why", "the last rank has left"}, {"again", false}});
  ASSERT_TRUE(until([this] { return job_at(1).empty(); }));
  rank_.join();
  EXPECT_NE(opened_, MUSTER_ERR_JOB_ENDED) << why_;
  EXPECT_THAT(why_, HasSubstr("rank"));
}

// Goal:   a node that has asked and then dies keeps no rank waiting.
TEST_F(DesertedTest, IsOpenAgainWhenTheNodeThatAskedIsLost) {
  start();
  ask_for_its_end();
  EXPECT_TRUE(vacancy_said("closed"));
  come();
  EXPECT_FALSE(is_over_);
  puppets_.clear();
  rank_.join();
  EXPECT_EQ(opened_, MUSTER_OK) << why_;
  EXPECT_EQ(epoch_at(1), kEpoch);
  EXPECT_EQ(muster_close(session_), MUSTER_OK);
}

// Goal:   a leader that has lost the job, and makes it anew, finds room on a node that still has the earlier.
TEST_F(DesertedTest, MakesWayForTheSameJobOfItsLeader) {
  start();
  first_->say("node1", kEpoch + 1, "prepare", {{"wish", wish_}});
  const Json answer = awaited(*first_, "prepared");
  EXPECT_EQ(answer.at("epoch"), kEpoch + 1);
  EXPECT_FALSE(answer.contains("status")) << answer;
  EXPECT_EQ(epoch_at(1), kEpoch + 1);
  EXPECT_EQ(job_at(1), "starting");
}

// Goal:   a part that waits for its place is over when its leader is lost without a word, and its name is
// free.
TEST_F(SpanningTest, ForgetsAPartThatWaitsForItsPlaceWithItsLeader) {
  prepare(2);
  control::JobSpec job = nodes_[0]->options.jobs.front();
  job.asked_on = name(0);
  nodes_[1]->options.jobs.clear();
  nodes_[1]->options.jobs_max = 1;
  start(1);
  muster_session* holder = nullptr;
  const auto options = nodes_[1]->rank("other", 0, 1, "dp_shard=1");
  ASSERT_EQ(muster_open(&options, &holder), MUSTER_OK) << muster_last_error();
  Puppet& leader = puppet(0);
  ASSERT_TRUE(until([&] { return leader.knows(name(1)); }));
  leader.say(name(1), 77, "prepare", {{"wish", request_of(job)}});
  ASSERT_TRUE(
      until([this] { return waiting(1).find("waits for a place on this node") != std::string::npos; }));
  puppets_.erase(0);
  EXPECT_TRUE(until([this] { return waiting(1).empty(); })) << waiting(1);
  EXPECT_EQ(muster_close(holder), MUSTER_OK);
}

TEST_F(SpanningTest, SaysOnAllNodesWhichNetworkCannotBeOpened) {
  prepare(2);
  nodes_[1]->options.jobs[0].network = "ofi";
  nodes_[1]->options.jobs[0].networks_directory = "/nowhere";
  start_all();
  for (const std::size_t n : {0u, 1u})
    ASSERT_TRUE(until([&] { return waiting(n).find("network ofi: /nowhere/ofi.so") != std::string::npos; }))
        << waiting(n);
  EXPECT_THAT(waiting(0), AllOf(HasSubstr("node node1: "), HasSubstr("no such module")));
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty(); }));
}

}  // namespace
}  // namespace muster::supervisor
