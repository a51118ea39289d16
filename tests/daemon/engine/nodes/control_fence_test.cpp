// ControlFence: an attach waits for what other nodes had to say, and not for their silence.
#include "daemon/engine/nodes/control_fence.hpp"

#include "tests/daemon/engine/nodes/kept_links.hpp"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace muster::engine {
namespace {

constexpr NodeIndex kA{0}, kB{1}, kC{2};

// The engine of one node of a, b and c. Each node has one rank.
struct OneEngine {
  explicit OneEngine(NodeIndex here)
      : control_fence(*World::build({"a", "b", "c"}, std::vector<std::uint32_t>{0, 1, 2}, here), links,
                      [this](NodeIndex node) { return away.count(node) == 0; }) {}
  std::set<NodeIndex> away;
  test::KeptLinks links;
  ControlFence control_fence;
};

class ControlFenceTest : public ::testing::Test {
 protected:
  // Brings what `from` has told `to` there, in order.
  static void deliver(NodeIndex from, OneEngine& sender, NodeIndex to, OneEngine& receiver) {
    for (const auto& [node, message] : sender.links.told)
      if (node == to) receiver.control_fence.hear(from, message);
    sender.links.told.clear();
  }
  static void answer(OneEngine& engine) {
    for (int i = 0; i <= ControlFence::kAnsweredAfter; ++i) engine.control_fence.answer();
  }

  OneEngine a_{kA}, b_{kB};
  const Instant begin_{1'000};
};

// Goal:   two ranks attach at once: an answer to the later question answers the earlier one too.
TEST_F(ControlFenceTest, TakesOneAnswerForTheQuestionsBeforeIt) {
  a_.away = {kC};
  const std::uint64_t first = a_.control_fence.ask(begin_);
  const std::uint64_t second = a_.control_fence.ask(begin_);
  EXPECT_FALSE(a_.control_fence.over(first, begin_));
  EXPECT_FALSE(a_.control_fence.over(second, begin_));
  deliver(kA, a_, kB, b_);
  answer(b_);
  EXPECT_EQ(b_.links.told.size(), 1u) << "one answer for both";
  deliver(kB, b_, kA, a_);
  EXPECT_TRUE(a_.control_fence.over(first, begin_));
  EXPECT_TRUE(a_.control_fence.over(second, begin_));
  EXPECT_FALSE(a_.control_fence.is_open());
}

// Goal:   a message that a node sent before it received a question is no answer to it.
TEST_F(ControlFenceTest, TakesNoAnswerForTheQuestionsBehindIt) {
  a_.away = {kC};
  const std::uint64_t first = a_.control_fence.ask(begin_);
  deliver(kA, a_, kB, b_);
  answer(b_);
  const std::uint64_t second = a_.control_fence.ask(begin_);
  deliver(kB, b_, kA, a_);
  EXPECT_TRUE(a_.control_fence.over(first, begin_));
  EXPECT_FALSE(a_.control_fence.over(second, begin_));
}

// Goal:   an engine answers a question only after it has handled the messages that its clients sent before.
TEST_F(ControlFenceTest, AnswersOnceEarlierMessagesAreHandled) {
  a_.control_fence.ask(begin_);
  deliver(kA, a_, kB, b_);
  for (int i = 0; i < ControlFence::kAnsweredAfter; ++i) b_.control_fence.answer();
  EXPECT_TRUE(b_.links.told.empty());
  EXPECT_TRUE(b_.control_fence.is_open());
  b_.control_fence.answer();
  EXPECT_EQ(b_.links.told.size(), 1u);
  EXPECT_FALSE(b_.control_fence.is_open());
}

TEST_F(ControlFenceTest, WaitsForEachNodeThatIsLinkedAndNoLongerThanItsTime) {
  const std::uint64_t question = a_.control_fence.ask(begin_);
  deliver(kA, a_, kB, b_);
  answer(b_);
  deliver(kB, b_, kA, a_);
  EXPECT_FALSE(a_.control_fence.over(question, begin_)) << "c has not answered";
  EXPECT_FALSE(a_.control_fence.over(question, begin_ + ControlFence::kTime - Nanos(1)));
  EXPECT_TRUE(a_.control_fence.over(question, begin_ + ControlFence::kTime));
  const std::uint64_t again = a_.control_fence.ask(begin_);
  deliver(kA, a_, kB, b_);
  answer(b_);
  deliver(kB, b_, kA, a_);
  a_.away = {kC};
  EXPECT_TRUE(a_.control_fence.over(again, begin_)) << "c is gone";
}

// Goal:   a message of another length changes nothing.
TEST_F(ControlFenceTest, LeavesOtherMessagesAlone) {
  a_.away = {kC};
  const std::uint64_t question = a_.control_fence.ask(begin_);
  deliver(kA, a_, kB, b_);
  answer(b_);
  ASSERT_EQ(b_.links.told.size(), 1u);
  std::vector<std::byte> message = b_.links.told.front().second;
  message.push_back({});
  a_.control_fence.hear(kB, message);
  message.resize(message.size() - 2);
  a_.control_fence.hear(kB, message);
  EXPECT_FALSE(a_.control_fence.over(question, begin_));
  a_.control_fence.hear(kB, b_.links.told.front().second);
  EXPECT_TRUE(a_.control_fence.over(question, begin_));
}

}  // namespace
}  // namespace muster::engine
