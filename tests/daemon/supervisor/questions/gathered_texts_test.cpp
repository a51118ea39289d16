#include "daemon/supervisor/questions/gathered_texts.hpp"

#include "daemon/control/link/frame.hpp"
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
using ::testing::HasSubstr;

constexpr std::uint64_t kTrainEpoch = 41;
constexpr Nanos kLongTime = std::chrono::minutes(10);

std::string letters(std::size_t count) {
  std::string text(count, 'a');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

shm::Descriptor memory_of(const std::string& text) {
  return *control::text_descriptor(text);
}

// Both ends of a pair of nodes with one rank each of job "train". Each end receives the messages of the other
// as bytes, unless the test changes them or keeps them back.
class GatheredTextsTest : public ::testing::Test {
 protected:
  struct End {
    End(GatheredTextsTest& test, std::uint32_t node)
        : name("node" + std::to_string(node)),
          questions(test.loop_, test.clock_, table, test.ways(*this)),
          gathered(test.clock_, table, questions) {
      control::JobSpec spec;
      spec.name = "train";
      spec.mesh = "dp_shard=2";
      spec.epoch = kTrainEpoch;
      const std::uint32_t node_of[] = {0, 1};
      spec.world = *World::build({"node0", "node1"}, node_of, NodeIndex(node));
      EXPECT_TRUE(table.create(spec));
    }
    std::string name;
    JobTable table{Shares({.all = 4, .reserved = 0, .of_one = 4}, 7)};
    std::vector<NodeTexts::Said> asked;  // of this node's own text
    std::vector<Json> sent;
    PeerQuestions questions;
    GatheredTexts gathered;
  };
  PeerQuestions::Ways ways(End& of) {
    return {.send =
                [&of](const std::string&, const Json& message) {
                  of.sent.push_back(message);
                  return true;
                },
            .why_not = [](const std::string& peer) { return "node " + peer + " is away: no route"; },
            .ask_engine = [](const std::string&, const Json&,
                             const EngineProcess::Answered&) { ADD_FAILURE() << "a text was asked for"; },
            .text_of =
                [&of](const std::string& job, const std::string& kind, NodeTexts::Said said) {
                  EXPECT_EQ(job, "train");
                  EXPECT_EQ(kind, "flight");
                  of.asked.push_back(std::move(said));
                }};
  }
  void gather(Nanos time = kLongTime) {
    here_.gathered.gather(*here_.table.find("train"), "flight", time, [this](const auto& texts) {
      ++gathered_;
      texts_ = texts;
    });
  }
  void here_says(const std::string& text) { here_.asked.back()(memory_of(text)); }
  // One message in each direction. False: there is none.
  bool pass_on() {
    const bool any = !here_.sent.empty() || !there_.sent.empty();
    for (const Json& each : std::exchange(here_.sent, {})) there_.questions.heard("node0", as_frame(each));
    for (const Json& each : std::exchange(there_.sent, {})) here_.questions.heard("node1", as_frame(each));
    return any;
  }
  static Json as_frame(const Json& message) {
    const auto bytes = control::frame_of(message);
    EXPECT_TRUE(bytes);
    auto body =
        control::parse_body(std::span(*bytes).subspan(control::kFrameLengthBytes), control::kOfFrames);
    EXPECT_TRUE(body) << body.error().text();
    return *body;
  }
  // The answer of node1 to the latest question of this node, with what a test changes in its result.
  void lie(const Json& result) {
    const Json number = here_.sent.back().at("question");
    here_.sent.clear();
    here_.questions.heard("node1", as_frame({{"answer", number}, {"ok", true}, {"result", result}}));
  }
  std::string error_of(std::size_t node) const {
    return texts_.at(node).text ? "" : texts_.at(node).text.error().message();
  }

  control::Loop loop_;
  muster::test::ManualClock clock_;
  End here_{*this, 0};
  End there_{*this, 1};
  std::vector<GatheredTexts::NodeText> texts_;
  int gathered_ = 0;
};

// Goal:   a text of any length up to the limit comes whole, in parts that fit messages between nodes.
TEST_F(GatheredTextsTest, BringsTextsThatNoMessageCouldHold) {
  for (const std::size_t bytes :
       {std::size_t{5}, KeptTexts::kPartBytes, KeptTexts::kPartBytes + 1, 4 * KeptTexts::kPartBytes + 77}) {
    gather();
    here_says("own");
    ASSERT_TRUE(pass_on());
    there_.asked.back()(memory_of(letters(bytes)));
    while (pass_on()) {
    }
    ASSERT_TRUE(texts_.at(1).text) << error_of(1);
    EXPECT_EQ(*texts_[0].text, "own");
    EXPECT_EQ(*texts_[1].text, letters(bytes)) << bytes;
  }
  EXPECT_EQ(gathered_, 4);
}

TEST_F(GatheredTextsTest, LetCommandLinesCutThemApart) {
  gather();
  here_says("12345");
  pass_on();
  there_.asked.back()(fail(Code::kState, "not yet"));
  pass_on();
  const GatheredTexts::AnswerOfAll all = texts_of_nodes(here_.table.find("train")->spec.world, texts_);
  EXPECT_EQ(all.text, "12345");
  const Json& nodes = all.result.at("nodes");
  EXPECT_EQ(nodes[0], (Json{{"node", "node0"}, {"ranks", {0}}, {"bytes", 5}}));
  EXPECT_EQ(nodes[1].at("node"), "node1");
  EXPECT_EQ(nodes[1].at("ranks"), Json::array({1}));
  EXPECT_EQ(nodes[1].at("why"), "node node1: not yet");
  EXPECT_EQ(nodes[1].at("status"), static_cast<int>(Code::kState));
}

// Goal:   no answer of a peer that is not exactly the part that was asked for is taken, and it is named.
TEST_F(GatheredTextsTest, TakesNoPartThatWasNotAskedFor) {
  const auto bytes = [](std::size_t count) { return Json::binary(std::vector<std::uint8_t>(count, 'x')); };
  const std::size_t part = KeptTexts::kPartBytes;
  const Json first{{"report", 9}, {"bytes", part + 10}, {"from", 0}, {"text", bytes(part)}};
  const auto changed = [](Json json, const Json& by) {
    json.update(by);
    return json;
  };
  const Json bad_firsts[] = {Json::object(),
                             changed(first, {{"bytes", KeptTexts::kTextBytesMax + 1}}),
                             changed(first, {{"bytes", -1}}),
                             changed(first, {{"bytes", "many"}}),
                             changed(first, {{"from", 1}}),
                             changed(first, {{"text", std::string(part, 'x')}}),
                             changed(first, {{"text", bytes(part - 1)}}),
                             changed(first, {{"text", bytes(part + 1)}}),
                             changed(first, {{"bytes", 4}, {"text", bytes(5)}}),
                             changed(first, {{"bytes", 5}, {"text", bytes(0)}})};
  for (const Json& bad : bad_firsts) {
    gather();
    here_says("own");
    lie(bad);
    EXPECT_THAT(error_of(1), HasSubstr("node node1: ")) << bad;
    EXPECT_EQ(texts_.at(1).text.error().code(), Code::kProtocol);
  }
  const Json last{{"report", 9}, {"bytes", part + 10}, {"from", part}, {"text", bytes(10)}};
  const Json bad_lasts[] = {first,
                            changed(last, {{"report", 8}}),
                            changed(last, {{"bytes", part + 11}}),
                            changed(last, {{"text", bytes(9)}}),
                            changed(last, {{"text", bytes(11)}}),
                            changed(last, {{"from", 0}})};
  for (const Json& bad : bad_lasts) {
    gather();
    here_says("own");
    lie(first);
    ASSERT_EQ(here_.sent.size(), 1u);
    EXPECT_EQ(here_.sent[0].at("report"), 9);
    EXPECT_EQ(here_.sent[0].at("from"), part);
    lie(bad);
    EXPECT_THAT(error_of(1), HasSubstr("not the part of its text from 524288 on")) << bad.at("from");
  }
  gather();
  here_says("own");
  lie(first);
  lie(last);
  EXPECT_EQ(texts_.at(1).text->size(), part + 10);
}

// Goal:   the sizes that peers announce are bounded together, and given back.
TEST_F(GatheredTextsTest, HoldsNoMoreThanItsShareOfMemory) {
  const Json large{{"report", 9},
                   {"bytes", KeptTexts::kTextBytesMax},
                   {"from", 0},
                   {"text", Json::binary(std::vector<std::uint8_t>(KeptTexts::kPartBytes, 'x'))}};
  for (int round = 0; round < 2; ++round) {
    std::vector<Json> open;
    for (std::size_t held = 0; held < GatheredTexts::kBytesMax; held += KeptTexts::kTextBytesMax) {
      gather();
      here_.asked.back()(fail(Code::kState, "none here"));
      lie(large);
      open.push_back(here_.sent.back().at("question"));
      EXPECT_EQ(gathered_, 0);
    }
    gather();
    here_.asked.back()(fail(Code::kState, "none here"));
    lie(large);
    ASSERT_EQ(gathered_, 1);
    EXPECT_EQ(texts_.at(1).text.error().code(), Code::kNoResource);
    EXPECT_THAT(error_of(1), HasSubstr("node node1 has"));
    here_.questions.on_down("node1", Status(Code::kDaemonLost, "it has closed the connection"));
    EXPECT_EQ(gathered_, 1 + static_cast<int>(open.size()));
    EXPECT_THAT(error_of(1), HasSubstr("node node1 is away"));
    gathered_ = 0;
    here_.sent.clear();
  }
}

// Goal:   a node that is silent from the start, or in the middle of its text, is named once the time is over.
TEST_F(GatheredTextsTest, NamesWhoIsTooSlow) {
  gather(1ms);
  here_says("own");
  while (gathered_ == 0) loop_.turn();
  EXPECT_EQ(*texts_.at(0).text, "own");
  EXPECT_THAT(error_of(1), HasSubstr("node node1 did not answer within"));
  here_.sent.clear();
  gather(5s);
  here_says("own");
  pass_on();
  there_.asked.back()(memory_of(letters(2 * KeptTexts::kPartBytes)));
  clock_.advance(5s);
  pass_on();
  ASSERT_EQ(gathered_, 2);
  EXPECT_EQ(error_of(1), "node node1 has sent 524288 of 1048576 bytes within 5.0 s");
  EXPECT_EQ(texts_.at(1).text.error().code(), Code::kTimeout);
}

// ---- the side that answers ---------------------------------------------------------------------

class KeptTextsTest : public ::testing::Test {
 protected:
  static KeptTexts::Text text(std::size_t bytes) {
    return std::make_shared<const shm::Descriptor>(memory_of(letters(bytes)));
  }
  control::Loop loop_;
  KeptTexts kept_{loop_};
  const std::size_t part_ = KeptTexts::kPartBytes;
};

TEST_F(KeptTextsTest, GiveEachPeerItsOwnTextsAlone) {
  const auto first = kept_.first("node1", text(2 * part_ + 1));
  ASSERT_TRUE(first);
  const std::uint64_t report = first->at("report");
  EXPECT_NE(report, 0u);
  EXPECT_EQ(kept_.part("node2", report, part_).error().code(), Code::kNotFound);
  EXPECT_EQ(kept_.part("node1", report + 1, part_).error().code(), Code::kNotFound);
  EXPECT_EQ(kept_.part("node1", report, 2 * part_ + 1).error().code(), Code::kBadArgument);
  EXPECT_EQ(kept_.part("node1", report, ~std::uint64_t{0}).error().code(), Code::kBadArgument);
  EXPECT_EQ(kept_.part("node1", report, part_)->at("text").get_binary().size(), part_);
  EXPECT_EQ(kept_.part("node1", report, 2 * part_)->at("text").get_binary().size(), 1u);
  EXPECT_EQ(kept_.part("node1", report, 2 * part_).error().code(), Code::kNotFound) << "it was the last part";
}

TEST_F(KeptTextsTest, KeepNoMoreThanAPeersShare) {
  for (std::size_t i = 0; i < KeptTexts::kOfPeerMax; ++i) ASSERT_TRUE(kept_.first("node1", text(part_ + 1)));
  EXPECT_EQ(kept_.first("node1", text(part_ + 1)).error().code(), Code::kBusy);
  EXPECT_TRUE(kept_.first("node1", text(part_))) << "nothing of it is kept";
  EXPECT_TRUE(kept_.first("node2", text(part_ + 1)));
  kept_.forget("node1");
  EXPECT_TRUE(kept_.first("node1", text(part_ + 1)));
}

// Goal:   an engine, which runs with its job's rights, cannot make the supervisor read anything but a text.
TEST_F(KeptTextsTest, TakeMemoryFilesAlone) {
  const auto refused = [&](shm::Descriptor what) {
    const auto first = kept_.first("node1", std::make_shared<const shm::Descriptor>(std::move(what)));
    return !first && first.error().code() == Code::kProtocol;
  };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const shm::Descriptor writes(ends[1]);
  EXPECT_TRUE(refused(shm::Descriptor(ends[0])));
  EXPECT_TRUE(refused(memory_of(std::string(KeptTexts::kTextBytesMax + 1, 'x'))));
}

}  // namespace
}  // namespace muster::supervisor
