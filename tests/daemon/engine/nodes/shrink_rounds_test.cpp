#include "daemon/engine/nodes/shrink_rounds.hpp"

#include <gmock/gmock.h>

namespace muster::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const GroupId kGroup(3);
const SessionId kA(1), kB(2), kC(3), kLater(9);
constexpr std::uint64_t kAnswer = 77;

TEST(ShrinkRounds, WaitForAllWhoWereThereWhenSomebodyLeft) {
  ShrinkRounds rounds;
  rounds.lost(kGroup, SessionId(4));
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB, kC}), ElementsAre(kB, kC));
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB, kC}), ElementsAre(kB, kC)) << "asked again";
  EXPECT_THAT(rounds.ask(kGroup, kC, {kA, kB, kC}), ElementsAre(kB));
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB, kC}), IsEmpty());
  const auto askers = rounds.askers(kGroup, {kA, kB, kC});
  EXPECT_THAT(askers, ElementsAre(kA, kB, kC));
  rounds.close(kGroup, askers, kAnswer);
  EXPECT_EQ(rounds.take_answer(kGroup, kA), kAnswer);
  EXPECT_FALSE(rounds.take_answer(kGroup, kA).has_value()) << "once";
  EXPECT_EQ(rounds.take_answer(kGroup, kB), kAnswer);
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB, kC}), ElementsAre(kA, kC)) << "the next round";
}

// Goal:   a rank that asks after a round has failed does not count as one of that round.
TEST(ShrinkRounds, TellAllThatThereIsNoGroup) {
  ShrinkRounds rounds;
  static_cast<void>(rounds.ask(kGroup, kA, {kA, kB}));
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB}), IsEmpty());
  rounds.close(kGroup, rounds.askers(kGroup, {kA, kB}), fail(Code::kNoResource, "no place"));
  for (const SessionId asker : {kA, kB}) {
    const auto answer = rounds.take_answer(kGroup, asker);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->error().code(), Code::kNoResource);
  }
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB}), ElementsAre(kB));
}

TEST(ShrinkRounds, DoNotWaitForWhoCameLaterButTakeItAlong) {
  ShrinkRounds rounds;
  rounds.lost(kGroup, SessionId(4));
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB, kLater}), ElementsAre(kB));
  EXPECT_THAT(rounds.ask(kGroup, kLater, {kA, kB, kLater}), ElementsAre(kB));
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB, kLater}), IsEmpty());
  EXPECT_THAT(rounds.askers(kGroup, {kA, kB, kLater}), ElementsAre(kA, kB, kLater));
  // It knows of the next loss.
  rounds.close(kGroup, {kA, kB, kLater}, kAnswer);
  rounds.lost(kGroup, SessionId(10));
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kLater}), ElementsAre(kLater));
}

TEST(ShrinkRounds, DoNotWaitForWhoLeftMeanwhile) {
  ShrinkRounds rounds;
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB, kC}), ElementsAre(kB, kC))
      << "nobody was lost: all are waited for";
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB, kC}), ElementsAre(kC));
  rounds.left(kB);
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA}), IsEmpty());
  EXPECT_THAT(rounds.askers(kGroup, {kA}), ElementsAre(kA));
}

TEST(ShrinkRounds, ForgetWhoGaveUp) {
  ShrinkRounds rounds;
  rounds.lost(kGroup, SessionId(4));
  EXPECT_THAT(rounds.ask(kGroup, kA, {kA, kB}), ElementsAre(kB));
  rounds.give_up(kGroup, kA);
  EXPECT_THAT(rounds.ask(kGroup, kB, {kA, kB}), ElementsAre(kA));
  rounds.forget(kGroup);
  EXPECT_THAT(rounds.askers(kGroup, {kA, kB}), IsEmpty());
}

}  // namespace
}  // namespace muster::engine
