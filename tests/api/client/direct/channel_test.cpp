// The meeting itself, driven by hand on one thread: who has arrived, what an end ends, and what is no
// longer to be read.
#include "api/client/direct/channel.hpp"

#include "tests/api/client/direct/direct_world.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace muster::client::test {
namespace {

constexpr Hash128 kSame{1, 2};
const scheduler::Cause kLost{Code::kPeerLost, 1, "rank 1 died"};
const scheduler::Cause kAborted{Code::kAborted, 1, "aborted"};
using Fate = EpochView::Fate;

class Meetings : public ::testing::Test {
 protected:
  Meetings() : world_(2, 1 << 16, Machine{64, 2, true}), one_(world_.channel(0)), other_(world_.channel(1)) {
    world_.timeout = Nanos(0);
    world_.on_overdue = [this](std::uint32_t, const Wanted& wanted) {
      asked_.push_back(wanted);
      world_.end({Code::kTimeout, 1, "too late"});
    };
  }
  static Announced said(std::byte value) {
    Announced announced{kSame};
    announced.location_bits = shm::pack_location({shm::PayloadLocation::Kind::kInline, 0, 0});
    announced.inside[0] = value;
    return announced;
  }
  static void arrive(Channel& channel, std::byte value = std::byte{0}) {
    channel.arrivals().draft() = said(value);
    channel.arrive(9);
  }
  static Fate fate_of(const Channel& channel) { return channel.view().fate_of(channel.at()); }
  WaitPolicy at_once() const { return {Nanos(0), true}; }

  DirectWorld world_;
  Channel& one_;
  Channel& other_;
  std::vector<Wanted> asked_;
};

// Goal:   a caller that was stopped, perhaps with everybody, does not take that time for a peer's.
TEST(WaitPolicy, DoesNotCountTheTimeForWhichItsCallerWasStopped) {
  struct : WaitHooks {
    Instant now() const override { return at; }
    bool engine_gone() override { return false; }
    void overdue(const Wanted&) override {}
    Instant at = std::chrono::seconds(100);
  } hooks;
  WaitPolicy policy(std::chrono::seconds(2), true);
  EXPECT_FALSE(policy.over(hooks));
  hooks.at += std::chrono::seconds(1);
  EXPECT_FALSE(policy.over(hooks));
  hooks.at += std::chrono::seconds(50);
  EXPECT_FALSE(policy.over(hooks)) << "it was stopped";
  hooks.at += std::chrono::milliseconds(999);
  EXPECT_FALSE(policy.over(hooks));
  hooks.at += std::chrono::milliseconds(1);
  EXPECT_TRUE(policy.over(hooks));
  policy.renew();
  hooks.at += std::chrono::seconds(50);
  EXPECT_FALSE(policy.over(hooks)) << "a new one has begun";
}

TEST_F(Meetings, BringsEachMemberWhatTheOthersSaid) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(one_.begin());
    ASSERT_TRUE(other_.begin());
    arrive(one_, std::byte(10 + round));
    arrive(other_, std::byte(20 + round));
    for (Channel* channel : {&one_, &other_}) {
      WaitPolicy policy = at_once();
      ASSERT_EQ(channel->await_arrivals(policy), Waited::kMet);
      EXPECT_EQ(channel->arrivals().of(0).inside[0], std::byte(10 + round));
      EXPECT_EQ(channel->arrivals().of(1).inside[0], std::byte(20 + round));
      EXPECT_EQ(channel->arrivals().of(1).common, kSame);
    }
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, AsksForTheMissingAtTheDeadlineAndEndsWithTheEpoch) {
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  WaitPolicy policy = at_once();
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kEnded);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].kind, shm::DirectWait::kArrivals);
  EXPECT_EQ(asked_[0].position, 1u);
  const engine::DirectQuestion question{kGroupId, 0, 1, 1, 0, shm::DirectWait::kArrivals, 0};
  EXPECT_EQ(world_.board().records().missing(question), std::vector<std::uint32_t>{1});
}

// Goal:   an interrupt ends what would wait, and only that.
TEST_F(Meetings, EndsAWaitThatIsInterruptedUnlessItIsOver) {
  world_.interrupted = true;
  WaitPolicy policy(std::chrono::seconds(20), true);
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kInterrupted);
  ASSERT_TRUE(other_.begin());
  arrive(other_);
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kMet) << "all have come";
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  world_.lose(kLost);
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kEnded) << "an end comes first";
  EXPECT_TRUE(asked_.empty());
}

// Goal:   readers of a stage keep it, even if an interrupt takes its owner out of the wait for them.
TEST_F(Meetings, LeavesAStageToItsReadersWhereItIsInterrupted) {
  world_.interrupted = true;
  WaitPolicy policy(std::chrono::seconds(20), true);
  Stages stages(world_.memory(0).own(), world_.memory(0).flight());
  for (const std::uint32_t index : {0u, 1u}) EXPECT_EQ(stages.take(one_, policy).location.index, index);
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  ASSERT_EQ(one_.await_arrivals(policy), Waited::kMet);
  one_.phases().set(one_.at(), shm::kPhaseLast);
  EXPECT_EQ(stages.take(one_, policy).data, nullptr);
  other_.phases().set(other_.at(), shm::kPhaseLast);
  const Stages::Stage stage = stages.take(one_, policy);
  EXPECT_NE(stage.data, nullptr) << "nobody is waited for any more";
  EXPECT_EQ(stage.location.index, 0u);
}

// Goal:   an interrupt ends operations alone: a group that is given back still waits for its readers first.
TEST_F(Meetings, SettlesAStageThoughItIsInterrupted) {
  Stages stages(world_.memory(0).own(), world_.memory(0).flight());
  WaitPolicy policy(std::chrono::milliseconds(50), true);
  static_cast<void>(stages.take(one_, policy));
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  world_.interrupted = true;
  const auto begin = std::chrono::steady_clock::now();
  stages.drain(one_, policy.undisturbed());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
}

TEST_F(Meetings, CompletesWhatHadComeBeforeTheEnd) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  arrive(other_);
  world_.lose(kLost);
  // A member that was held up since it arrived finds that the operation goes on.
  EXPECT_TRUE(one_.view().ended());
  EXPECT_EQ(fate_of(one_), Fate::kGoesOn);
  WaitPolicy policy = at_once();
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kMet);
  EXPECT_FALSE(one_.begin()) << "the loss is still to be heard";
}

TEST_F(Meetings, GoesOnWithoutThoseWhoHaveDoneTheirPart) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  WaitPolicy policy = at_once();
  ASSERT_EQ(one_.await_arrivals(policy), Waited::kMet);
  ASSERT_EQ(other_.await_arrivals(policy), Waited::kMet);
  one_.phases().set(one_.at(), 1);
  other_.phases().set(other_.at(), 1);
  world_.board().segments().set_attached(Rank(1), false);
  world_.lose(kLost);
  EXPECT_EQ(one_.phases().await(one_.at(), 1, policy), Waited::kMet);
  one_.phases().set(one_.at(), 2);
  EXPECT_EQ(one_.phases().await(one_.at(), 2, policy), Waited::kEnded) << "who is gone will not come to it";
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, NoticesOneWhoWasGoneBeforeItsArrivalWasSeen) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  world_.board().segments().set_attached(Rank(1), false);
  world_.lose(kLost);
  WaitPolicy policy = at_once();
  ASSERT_EQ(one_.await_arrivals(policy), Waited::kMet);
  one_.phases().set(one_.at(), 1);
  EXPECT_EQ(one_.phases().await(one_.at(), 1, policy), Waited::kEnded);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, EndsWhatIsInFlightWhenItIsRevoked) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  world_.end(kAborted);
  EXPECT_EQ(fate_of(one_), Fate::kEnded);
}

// Goal:   an orderly exit under `muster run` fails nobody at whose operation all had arrived.
// Method: this member is held up between its arrival and its look at the epoch; meanwhile the other ends
//         the operation, leaves, and its launcher says that it will not come back.
TEST_F(Meetings, CompletesWhatHadComeBeforeAMemberWasCalledAbsent) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  arrive(other_, std::byte{5});
  world_.board().segments().set_attached(Rank(1), false);
  world_.lose(kLost);
  world_.lose(kLost);
  world_.board().epochs().set_absence(kGroupId, std::make_shared<const scheduler::Cause>(kLost));
  EXPECT_EQ(fate_of(one_), Fate::kGoesOn);
  WaitPolicy policy = at_once();
  ASSERT_EQ(one_.await_arrivals(policy), Waited::kMet);
  EXPECT_EQ(one_.arrivals().of(1).inside[0], std::byte{5});
  EXPECT_FALSE(one_.begin());
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, KnowsWhoHasLetGoOfAnOperation) {
  EXPECT_FALSE(one_.view().let_go(1, one_.at()));
  world_.lose(kLost);
  EXPECT_FALSE(one_.view().let_go(1, one_.at())) << "it waits on until it hears";
  world_.hear(1);
  EXPECT_TRUE(one_.view().let_go(1, one_.at()));
  EXPECT_FALSE(other_.view().let_go(0, other_.at())) << "it has heard itself, and is in the next epoch";
  world_.hear(0);
  world_.board().segments().set_attached(Rank(1), false);
  world_.lose(kLost);
  EXPECT_TRUE(one_.view().let_go(1, one_.at())) << "who is gone does not wait";
  world_.hear(0);
  world_.end(kAborted);
  EXPECT_TRUE(one_.view().let_go(0, one_.at())) << "an end for all";
}

TEST_F(Meetings, TellsALateArrivalSo) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  world_.lose(kLost);
  arrive(other_);
  EXPECT_EQ(fate_of(other_), Fate::kEnded);
}

TEST_F(Meetings, BeginsAnewInTheNextEpoch) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  world_.lose(kLost);
  EXPECT_EQ(world_.hear(0), "rank 1 died");
  EXPECT_EQ(one_.view().epoch(), 2u);
  EXPECT_EQ(one_.number(), 0u);
  ASSERT_TRUE(one_.begin());
  arrive(one_, std::byte{7});
  // The other has not moved on: its old arrivals do not count.
  arrive(other_);
  WaitPolicy policy = at_once();
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kEnded);
  world_.hear(0);
  world_.hear(1);
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_, std::byte{7});
  arrive(other_, std::byte{8});
  EXPECT_EQ(other_.await_arrivals(policy), Waited::kMet);
  EXPECT_EQ(other_.arrivals().of(0).inside[0], std::byte{7});
}

// Goal:   an operation for which all had met is completed. This holds for a member that reads after another
//         client has taken the giver's rank and has gone on.
TEST_F(Meetings, ReadsWhatAMemberGaveAfterItsSuccessorHasArrived) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_, std::byte{5});
  world_.board().segments().set_attached(Rank(1), false);
  world_.lose(kLost);
  world_.reattach(1);
  Channel& successor = world_.channel(1);
  ASSERT_TRUE(successor.begin());
  EXPECT_GT(successor.at().position, one_.at().position + 1) << "no old position is used again";
  arrive(successor, std::byte{9});
  WaitPolicy policy = at_once();
  ASSERT_EQ(one_.await_arrivals(policy), Waited::kMet);
  EXPECT_EQ(one_.arrivals().of(1).inside[0], std::byte{5});
  EXPECT_TRUE(one_.sound());
  EXPECT_TRUE(one_.view().let_go(1, one_.at())) << "but memory in its arena is the successor's";
}

// Goal:   whatever members had used for operations and messages, the next epoch begins above it, and its
//         first arrival spares the slot of what all had met for.
TEST_F(Meetings, BeginsAnEpochAboveEveryPositionThatWasUsed) {
  WaitPolicy policy = at_once();
  for (int round = 0; round < 3; ++round) {
    for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
    arrive(one_);
    arrive(other_);
    for (Channel* channel : {&one_, &other_}) ASSERT_EQ(channel->await_arrivals(policy), Waited::kMet);
  }
  const std::byte value{1};
  for (int i = 0; i < 20; ++i) {
    one_.messages().send(1, 5, said(value));
    Announced message;
    ASSERT_EQ(other_.messages().await(0, 6, &message, policy), Waited::kMet);
    other_.messages().acknowledge(0, false);
  }
  const std::uint64_t met = one_.at().position;
  world_.lose(kLost);
  EXPECT_GE(world_.board().epochs().base(kGroupId), 21u);
  EXPECT_EQ((world_.board().epochs().base(kGroupId) + 1) % 2, (met + 1) % 2) << "the other slot";
  const std::uint64_t base = world_.board().epochs().base(kGroupId);
  world_.lose(kLost);
  EXPECT_GT(world_.board().epochs().base(kGroupId), base + 1);
  EXPECT_EQ((world_.board().epochs().base(kGroupId) + 1) % 2, (met + 1) % 2) << "a member may still be in it";
}

// Goal:   a slow member completes what all had arrived at, however many others leave meanwhile.
TEST_F(Meetings, KnowWhatWasMetAfterAnyNumberOfLosses) {
  WaitPolicy policy = at_once();
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  for (int i = 0; i < 20; ++i) world_.lose(kLost);
  EXPECT_EQ(one_.await_arrivals(policy), Waited::kMet);
  EXPECT_TRUE(one_.sound());
}

// Goal:   each loss is heard of, also by a member that has not yet heard of an earlier end, and also if the
//         rank is back.
TEST_F(Meetings, HearsOfEachLossInTurn) {
  world_.end(kAborted);
  world_.lose(kLost);
  world_.reattach(1);
  EXPECT_EQ(world_.hear(0), "aborted");
  EXPECT_FALSE(one_.begin()) << "the death is still to be told";
  EXPECT_EQ(world_.hear(0), "rank 1 died");
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, HearsOfTheFirstOfSeveralEndsThatAreNoLoss) {
  world_.end(kAborted);
  world_.end({Code::kTimeout, 1, "too late"});
  EXPECT_EQ(world_.hear(0), "aborted");
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, LetsNobodyBeginWhileAMemberWillNotCome) {
  world_.board().epochs().set_absence(kGroupId, std::make_shared<const scheduler::Cause>(kLost));
  EXPECT_FALSE(one_.begin());
  EXPECT_EQ(world_.hear(0), "rank 1 died");
  EXPECT_EQ(one_.view().epoch(), 1u) << "an absence ends nothing by itself";
  EXPECT_FALSE(one_.begin());
  world_.board().epochs().set_absence(kGroupId, nullptr);
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, MatchesMessagesInOrder) {
  WaitPolicy policy = at_once();
  for (int i = 0; i < 3; ++i) {
    const std::byte value{static_cast<unsigned char>(i)};
    one_.messages().send(1, 5, said(value));
    Announced message;
    ASSERT_EQ(other_.messages().await(0, 6, &message, policy), Waited::kMet);
    EXPECT_EQ(message.inside[0], value);
    other_.messages().acknowledge(0, i == 2);
    bool disagreed = false;
    ASSERT_EQ(one_.messages().await_received(1, &disagreed, policy), Waited::kMet);
    EXPECT_EQ(disagreed, i == 2);
  }
}

TEST_F(Meetings, WritesAStageAgainOnlyWhenItsReadersAreDone) {
  std::vector<std::byte> segment(shm::kMemberRegionsOffset);
  const std::uint32_t recording = 0;
  FlightRing flight(segment.data(), &recording);
  Stages stages(segment.data(), flight);
  const WaitPolicy policy = at_once();
  const auto uses = [&](std::uint32_t index) {
    return reinterpret_cast<const shm::DirectHeader*>(segment.data())->stage_uses[index];
  };
  ASSERT_EQ(stages.take(one_, policy).location.index, 0u);
  ASSERT_TRUE(one_.begin());
  ASSERT_EQ(stages.take(one_, policy).location.index, 1u);
  ASSERT_TRUE(one_.begin());
  // Nobody said that he is done with operation 1, so the deadline passes; then the readers find the use
  // changed.
  EXPECT_EQ(uses(0), 1u);
  const Stages::Stage again = stages.take(one_, policy);
  EXPECT_EQ(again.location.index, 0u);
  EXPECT_EQ(again.location.value, 2u);
  EXPECT_TRUE(asked_.empty()) << "nobody is blamed for it";
}

}  // namespace
}  // namespace muster::client::test
