#include "daemon/supervisor/questions/peer_questions.hpp"

#include "daemon/control/link/frame.hpp"
#include "daemon/control/texts/node_snapshot.hpp"
#include "daemon/supervisor/questions/merged_hang.hpp"
#include "tests/support/manual_clock.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using control::Json;
using control::Packet;
using ::testing::HasSubstr;

constexpr std::uint64_t kEpoch = 41;
constexpr Nanos kLong = std::chrono::minutes(10);

// Job "train" with two ranks on each of node0, node1 and node2, and job "alone" of this node, which is node0.
// The test plays the peers and the engine.
class PeerQuestionsTest : public ::testing::Test {
 protected:
  struct ToEngine {
    std::string job;
    std::string command;
    EngineProcess::Answered answered;
  };
  PeerQuestionsTest() {
    control::JobSpec spec;
    spec.name = "train";
    spec.mesh = "dp_shard=6";
    spec.epoch = kEpoch;
    const std::uint32_t node_of[] = {0, 0, 1, 1, 2, 2};
    spec.world = *World::build({"node0", "node1", "node2"}, node_of, NodeIndex(0));
    EXPECT_TRUE(table_.create(spec));
    spec.name = "alone";
    spec.epoch = kEpoch + 1;
    spec.world = World(2);
    EXPECT_TRUE(table_.create(spec));
  }
  PeerQuestions::Ways ways() {
    return {.send =
                [this](const std::string& peer, const Json& message) {
                  if (peer == away_) return false;
                  sent_.emplace_back(peer, message);
                  return true;
                },
            .why_not = [](const std::string& peer) { return "node " + peer + " is away: no route"; },
            .ask_engine =
                [this](const std::string& job, const Json& command, EngineProcess::Answered answered) {
                  to_engine_.push_back({job, command.at("command"), std::move(answered)});
                },
            .text_of = [](const std::string&, const std::string&,
                          const NodeTexts::Said&) { ADD_FAILURE() << "no text was asked for"; }};
  }
  void ask(Nanos time = kLong) {
    questions_.ask_nodes(*table_.find("train"), "snapshot", time,
                         [this](std::vector<PeerQuestions::NodeAnswer> answers) {
                           ++all_answered_;
                           answers_ = std::move(answers);
                         });
  }
  // A frame is what a peer sends: it has been bytes.
  void hear(const std::string& peer, const Json& message) {
    questions_.heard(peer, Json::from_cbor(Json::to_cbor(message)));
  }
  void engine_says(Json body) {
    Packet packet;
    packet.body = std::move(body);
    const ToEngine first = std::move(to_engine_.front());
    to_engine_.erase(to_engine_.begin());
    first.answered(std::move(packet));
  }
  static Json question(std::uint64_t number, const Json& more = Json::object()) {
    Json json{{"question", number}, {"job", "train"}, {"epoch", kEpoch}, {"command", "report"}};
    json.update(more);
    return json;
  }
  // This node's latest answer.
  Json last() const { return sent_.empty() ? Json::object() : sent_.back().second; }
  std::string error_of(std::size_t node) const {
    return answers_.at(node).result ? "" : answers_.at(node).result.error().text();
  }

  control::Loop loop_;
  muster::test::ManualClock clock_;
  JobTable table_{Shares({.all = 4, .reserved = 0, .of_one = 4}, 7)};
  std::vector<std::pair<std::string, Json>> sent_;
  std::vector<ToEngine> to_engine_;
  std::string away_;
  std::vector<PeerQuestions::NodeAnswer> answers_;
  int all_answered_ = 0;
  PeerQuestions questions_{loop_, clock_, table_, ways()};
};

TEST_F(PeerQuestionsTest, AsksAllNodesOfAJobAndItsOwnEngine) {
  ask();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].first, "node1");
  EXPECT_EQ(sent_[1].first, "node2");
  const Json& message = sent_[0].second;
  EXPECT_TRUE(PeerQuestions::is_one(message));
  EXPECT_EQ(message.at("job"), "train");
  EXPECT_EQ(message.at("epoch"), kEpoch);
  EXPECT_EQ(message.at("command"), "snapshot");
  ASSERT_EQ(to_engine_.size(), 1u);
  EXPECT_EQ(to_engine_[0].command, "snapshot");
  clock_.advance(1s);
  hear("node2", {{"answer", sent_[1].second.at("question")}, {"ok", true}, {"result", {{"x", 2}}}});
  clock_.advance(1s);
  engine_says(control::success({{"x", 0}}));
  EXPECT_EQ(all_answered_, 0);
  clock_.advance(1s);
  hear("node1", {{"answer", message.at("question")}, {"ok", false}, {"status", -108}, {"error", "no"}});
  ASSERT_EQ(all_answered_, 1);
  ASSERT_EQ(answers_.size(), 3u);
  EXPECT_EQ(answers_[0].result->at("x"), 0);
  EXPECT_EQ(answers_[0].heard, Instant(2s));
  EXPECT_THAT(error_of(1), HasSubstr("node node1: no"));
  EXPECT_EQ(answers_[1].node, "node1");
  EXPECT_EQ(answers_[2].result->at("x"), 2);
  EXPECT_EQ(answers_[2].heard, Instant(1s));
}

// Goal:   no node can answer for another, twice, or in a form of its own.
TEST_F(PeerQuestionsTest, TakesOneWellFormedAnswerOfTheNodeThatWasAsked) {
  const Json odd[] = {{{"ok", true}},
                      {{"ok", true}, {"result", Json::array()}},
                      {{"ok", "yes"}, {"result", Json::object()}},
                      {{"ok", false}, {"status", 0}, {"error", "x"}},
                      {{"ok", false}, {"status", -108}, {"error", 5}},
                      Json::object()};
  for (const Json& each : odd) {
    sent_.clear();
    all_answered_ = 0;
    ask();
    const Json number = sent_.at(0).second.at("question");
    Json answer = each;
    answer["answer"] = number;
    const Json good{{"answer", number}, {"ok", true}, {"result", Json::object()}};
    hear("node2", good);  // the number is node1's
    hear("node3", good);
    hear("node1", {{"answer", number.get<std::uint64_t>() + 100}, {"ok", true}, {"result", Json::object()}});
    hear("node1", {{"answer", "1"}, {"ok", true}, {"result", Json::object()}});
    hear("node1", {{"answer", -1}, {"ok", true}, {"result", Json::object()}});
    hear("node1", answer);
    hear("node1", good);  // too late
    hear("node2", {{"answer", sent_.at(1).second.at("question")}, {"ok", true}, {"result", Json::object()}});
    EXPECT_EQ(all_answered_, 0) << "this node's engine has not answered";
    engine_says(control::success(Json::object()));
    ASSERT_EQ(all_answered_, 1);
    EXPECT_EQ(answers_[1].result.error().code(), Code::kProtocol) << each;
    EXPECT_TRUE(answers_[2].result);
  }
}

TEST_F(PeerQuestionsTest, SaysAtOnceThatANodeIsAwayOrGoesAway) {
  away_ = "node1";
  ask();
  EXPECT_EQ(sent_.size(), 1u);
  questions_.on_down("node2", Status(Code::kDaemonLost, "it has closed the connection"));
  EXPECT_EQ(all_answered_, 0);
  engine_says(control::success(Json::object()));
  ASSERT_EQ(all_answered_, 1);
  EXPECT_THAT(error_of(1), HasSubstr("node node1 is away: no route"));
  EXPECT_EQ(answers_[1].result.error().code(), Code::kDaemonLost);
  EXPECT_THAT(error_of(2), HasSubstr("node node2 is away: it has closed the connection"));
  EXPECT_EQ(answers_[2].result.error().code(), Code::kDaemonLost);
}

// Goal:   a node that does not answer in time is named, also this node's own engine; a late answer is none.
TEST_F(PeerQuestionsTest, DoesNotWaitForEver) {
  ask(1ms);
  hear("node2", {{"answer", sent_.at(1).second.at("question")}, {"ok", true}, {"result", Json::object()}});
  while (all_answered_ == 0) loop_.turn();
  EXPECT_EQ(answers_[0].result.error().code(), Code::kTimeout);
  EXPECT_THAT(error_of(0), HasSubstr("the engine of node node0 did not answer within"));
  EXPECT_EQ(answers_[1].result.error().code(), Code::kTimeout);
  EXPECT_THAT(error_of(1), HasSubstr("node node1 did not answer within"));
  EXPECT_TRUE(answers_[2].result);
  engine_says(control::success(Json::object()));
  hear("node1", {{"answer", sent_.at(0).second.at("question")}, {"ok", true}, {"result", Json::object()}});
  EXPECT_EQ(all_answered_, 1);
}

TEST_F(PeerQuestionsTest, AsksNoNodeMoreThanItsShare) {
  for (std::size_t i = 0; i < PeerQuestions::kOpenMax; ++i) ask();
  const std::size_t before = sent_.size();
  ask();
  EXPECT_EQ(sent_.size(), before);
  ASSERT_EQ(all_answered_, 1);
  for (const std::size_t node : {0u, 1u, 2u})
    EXPECT_EQ(answers_[node].result.error().code(), Code::kBusy) << node;
}

// ---- the side that answers ---------------------------------------------------------------------

TEST_F(PeerQuestionsTest, AnswersWhatTheEngineSays) {
  hear("node1", question(7));
  hear("node2", question(9));
  hear("node1", question(8, {{"command", "snapshot"}}));
  ASSERT_EQ(to_engine_.size(), 2u) << "equal questions are one to the engine";
  EXPECT_EQ(to_engine_[0].job, "train");
  EXPECT_EQ(to_engine_[0].command, "report");
  engine_says(control::success({{"ranks", Json::array({1})}}));
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].first, "node1");
  EXPECT_EQ(sent_[0].second.at("answer"), 7);
  EXPECT_EQ(sent_[0].second.at("result").at("ranks"), Json::array({1}));
  EXPECT_EQ(sent_[1].first, "node2");
  EXPECT_EQ(sent_[1].second.at("answer"), 9);
  engine_says(control::failed(Status(Code::kState, "the job does not exist yet")));
  EXPECT_EQ(last().at("answer"), 8);
  EXPECT_EQ(last().at("ok"), false);
  EXPECT_EQ(last().at("error"), "the job does not exist yet");
}

// Goal:   only questions that change nothing, and only about what the peer has a part of.
TEST_F(PeerQuestionsTest, RefusesWhatAPeerMayNotAsk) {
  const std::pair<Json, const char*> cases[] = {
      {{{"command", "stop"}}, "do not ask each other 'stop'"},
      {{{"command", "hang"}}, "do not ask each other 'hang'"},
      {{{"command", 5}}, "do not ask each other ''"},
      {{{"job", "alone"}, {"epoch", kEpoch + 1}}, "no such job with ranks on node node1"},
      {{{"job", "none"}}, "no such job"},
      {{{"job", Json::array()}}, "no such job"},
      {{{"epoch", kEpoch + 1}}, "no such job"},
      {{{"epoch", "41"}}, "no such job"}};
  for (const auto& [more, why] : cases) {
    sent_.clear();
    hear("node1", question(3, more));
    ASSERT_EQ(sent_.size(), 1u) << why;
    EXPECT_EQ(last().at("answer"), 3);
    EXPECT_EQ(last().at("ok"), false);
    EXPECT_THAT(last().at("error").get<std::string>(), HasSubstr(why));
  }
  sent_.clear();
  hear("node7", question(4));
  EXPECT_THAT(last().at("error").get<std::string>(), HasSubstr("no such job with ranks on node node7"));
  sent_.clear();
  hear("node1", {{"question", "x"}, {"job", "train"}});
  hear("node1", {{"question", -1}});
  EXPECT_TRUE(sent_.empty()) << "nothing could be answered";
  EXPECT_TRUE(to_engine_.empty());
}

TEST_F(PeerQuestionsTest, AnswersNoPeerMoreThanItsShare) {
  for (std::uint64_t i = 0; i <= PeerQuestions::kOpenMax; ++i) hear("node1", question(i));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(last().at("answer"), PeerQuestions::kOpenMax);
  EXPECT_THAT(last().at("error").get<std::string>(), HasSubstr("wait for the job's engine"));
  hear("node2", question(1));
  EXPECT_EQ(sent_.size(), 1u) << "another peer has its own share";
  control::JobSpec spec = table_.find("train")->spec;
  spec.name = "other";
  spec.epoch = kEpoch + 2;
  ASSERT_TRUE(table_.create(spec));
  Json other = question(90);
  other.update({{"job", "other"}, {"epoch", kEpoch + 2}});
  hear("node1", other);
  EXPECT_EQ(sent_.size(), 1u) << "and so has another job, whose engine may answer";
  to_engine_.pop_back();
  questions_.on_down("node1", Status(Code::kDaemonLost, "gone"));
  hear("node1", question(50));
  EXPECT_EQ(to_engine_.size(), 1u);
  engine_says(control::success(Json::object()));
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[1].first, "node2");
  EXPECT_EQ(sent_[2].second.at("answer"), 50);
}

// Goal:   an answer that is too large for a frame, in bytes or in items, ends no link: an error says so.
TEST_F(PeerQuestionsTest, SaysThatAnAnswerDoesNotFit) {
  const Json large[] = {{{"text", std::string(control::kFrameBytesMax, 'x')}},
                        {{"list", Json(std::vector<int>(control::kOfFrames.items_max, 1))}}};
  for (const Json& each : large) {
    hear("node1", question(3));
    engine_says(control::success(each));
    EXPECT_EQ(last().at("answer"), 3);
    EXPECT_EQ(last().at("ok"), false);
    EXPECT_THAT(last().at("error").get<std::string>(), HasSubstr("more than a message between nodes"));
    EXPECT_LT(Json::to_cbor(last()).size(), 1000u);
  }
}

// ---- a diagnosis of all nodes ------------------------------------------------------------------

Json says(std::vector<std::uint32_t> ranks, std::uint32_t arrived, Nanos age) {
  blame::Snapshot s;
  s.now = 100s;
  s.patience = 1s;
  s.ranks.resize(6);
  for (const std::uint32_t rank : ranks) {
    s.ranks[rank].local = s.ranks[rank].attached = true;
    s.ranks[rank].process = blame::RankState::Process::kRunning;
  }
  blame::Wait wait;
  wait.group_name = "world";
  wait.members = 6;
  wait.since = s.now - age;
  for (const std::uint32_t rank : ranks) {
    if (rank < arrived) wait.arrived.push_back({rank, wait.since});
    if (rank >= arrived) wait.missing.push_back({rank, {}, {}});
  }
  wait.span = blame::SpanKey{1, 1, -1, -1, 0, 1, 1};
  wait.takes_part = {0, 1, 2, 3, 4, 5};
  s.waits = {wait};
  return control::snapshot_json(s);
}

TEST_F(PeerQuestionsTest, MakeOneDiagnosisOfAllAnswers) {
  const World& world = table_.find("train")->spec.world;
  std::vector<PeerQuestions::NodeAnswer> answers{
      {"node0", says({0, 1}, 3, 5s), 10s},
      {"node1", says({2, 3}, 3, 4s), 10s},
      {"node2", fail(Code::kDaemonLost, "node node2 is away: no route"), 10s}};
  answers[1].result->update({{"latest_deadline", {{"ago_ns", 7u}, {"report", {{"text", "then"}}}}}});
  Json report = merged_hang("train", world, answers, "");
  EXPECT_EQ(report.at("verdict"), "not_joined");
  EXPECT_EQ(report.at("wait").at("missing"), Json::array({3, 4, 5}));
  ASSERT_EQ(report.at("culprits").size(), 3u);
  EXPECT_EQ(report.at("culprits").at(0).at("rank"), 3);
  EXPECT_EQ(report.at("culprits").at(0).at("node"), "node1");
  EXPECT_EQ(report.at("culprits").at(1).at("verdict"), "unknown");
  EXPECT_EQ(report.at("unanswered").at(0).at("node"), "node2");
  EXPECT_EQ(report.at("unanswered").at(0).at("ranks"), Json::array({4, 5}));
  EXPECT_EQ(report.at("ranks").size(), 6u);
  EXPECT_EQ(report.at("ranks").at(5).at("unknown"), "node node2 is away: no route");
  EXPECT_EQ(report.at("latest_deadline").at("ago_ns"), 7);
  // An unreadable answer counts as no answer, and its deadline as none.
  (*answers[1].result)["waits"][0].erase("span");
  (*answers[1].result)["waits"][0]["members"] = "many";
  (*answers[1].result)["latest_deadline"]["report"]["text"] = 5;
  report = merged_hang("train", world, answers, "");
  EXPECT_EQ(report.at("verdict"), "unknown");
  EXPECT_THAT(report.at("unanswered").at(0).at("why").get<std::string>(), HasSubstr("'members'"));
  EXPECT_TRUE(report.at("latest_deadline").is_null());
}

}  // namespace
}  // namespace muster::supervisor
