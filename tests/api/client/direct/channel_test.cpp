// The meeting itself, driven by hand on one thread: who has arrived, what a verdict ends, and what is no
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
const scheduler::Cause kLost{Code::kPeerLost, 1, "rank 1 died", 1};

class Meetings : public ::testing::Test {
 protected:
  Meetings() : world_(2, 1 << 16, Machine{64, 2, true}), one_(world_.channel(0)), other_(world_.channel(1)) {
    world_.timeout = Nanos(0);
    world_.on_overdue = [this](std::uint32_t, const Wanted& wanted) {
      asked_.push_back(wanted);
      world_.board().break_group(kGroupId, {Code::kTimeout, 1, "too late", 0}, engine::Board::End::kForAll);
    };
  }
  static void arrive(Channel& channel, std::byte value = std::byte{0}) {
    channel.arrive(9, kSame, {shm::Place::Kind::kInline, 0, 0}, std::span(&value, 1));
  }
  Patience at_once() const { return {Nanos(0), true}; }

  DirectWorld world_;
  Channel& one_;
  Channel& other_;
  std::vector<Wanted> asked_;
};

// Goal:   a caller that was stopped, perhaps with everybody, does not take that time for a peer's.
TEST(Patience, DoesNotCountTheTimeForWhichItsCallerWasStopped) {
  struct : Vigil {
    Instant now() const override { return at; }
    bool engine_gone() override { return false; }
    void overdue(const Channel&) override {}
    Instant at = std::chrono::seconds(100);
  } vigil;
  Patience patience(std::chrono::seconds(2), true);
  EXPECT_FALSE(patience.over(vigil));
  vigil.at += std::chrono::seconds(1);
  EXPECT_FALSE(patience.over(vigil));
  vigil.at += std::chrono::seconds(50);
  EXPECT_FALSE(patience.over(vigil)) << "it was stopped";
  vigil.at += std::chrono::milliseconds(999);
  EXPECT_FALSE(patience.over(vigil));
  vigil.at += std::chrono::milliseconds(1);
  EXPECT_TRUE(patience.over(vigil));
  patience.renew();
  vigil.at += std::chrono::seconds(50);
  EXPECT_FALSE(patience.over(vigil)) << "a new one has begun";
}

TEST_F(Meetings, BringsEachMemberWhatTheOthersSaid) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(one_.begin());
    ASSERT_TRUE(other_.begin());
    arrive(one_, std::byte(10 + round));
    arrive(other_, std::byte(20 + round));
    for (Channel* channel : {&one_, &other_}) {
      Patience patience = at_once();
      ASSERT_EQ(channel->await_arrivals(patience), Meeting::kMet);
      EXPECT_EQ(channel->arrival(0).payload[0], std::byte(10 + round));
      EXPECT_EQ(channel->arrival(1).payload[0], std::byte(20 + round));
      EXPECT_EQ(channel->arrival(1).common, kSame);
    }
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, AsksForTheMissingAtTheDeadlineAndTakesTheVerdict) {
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  Patience patience = at_once();
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kBroken);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].kind, shm::DirectWait::kArrivals);
  EXPECT_EQ(asked_[0].number, 1u);
  const engine::DirectQuestion question{kGroupId, 0, 1, 1, 0, shm::DirectWait::kArrivals, 0};
  EXPECT_EQ(world_.board().missing(question), std::vector<std::uint32_t>{1});
}

// Goal:   an interrupt ends what would wait, and only that.
TEST_F(Meetings, EndsAWaitThatIsInterruptedUnlessItIsOver) {
  world_.interrupted = true;
  Patience patience(std::chrono::seconds(20), true);
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kInterrupted);
  ASSERT_TRUE(other_.begin());
  arrive(other_);
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kMet) << "all have come";
  ASSERT_TRUE(one_.begin());
  arrive(one_);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kBroken) << "a verdict comes first";
  EXPECT_TRUE(asked_.empty());
}

// Goal:   who still reads a stage keeps it, also where its owner is wanted out of the wait for them.
TEST_F(Meetings, LeavesAStageToItsReadersWhereItIsInterrupted) {
  world_.interrupted = true;
  Patience patience(std::chrono::seconds(20), true);
  Stages stages(world_.memory(0).own(), world_.memory(0).flight());
  for (const std::uint32_t index : {0u, 1u}) EXPECT_EQ(stages.take(one_, patience).place.index, index);
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  ASSERT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  one_.set_phase(shm::kPhaseLast);
  EXPECT_EQ(stages.take(one_, patience).data, nullptr);
  other_.set_phase(shm::kPhaseLast);
  const Stages::Stage stage = stages.take(one_, patience);
  EXPECT_NE(stage.data, nullptr) << "nobody is waited for any more";
  EXPECT_EQ(stage.place.index, 0u);
}

// Goal:   what is no operation of a group is not interrupted: a group that is given back is settled first.
TEST_F(Meetings, SettlesAStageThoughItIsInterrupted) {
  Stages stages(world_.memory(0).own(), world_.memory(0).flight());
  Patience patience(std::chrono::milliseconds(50), true);
  static_cast<void>(stages.take(one_, patience));
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  world_.interrupted = true;
  const auto begin = std::chrono::steady_clock::now();
  stages.settle(one_, patience.undisturbed());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
}

TEST_F(Meetings, CompletesWhatHadComeBeforeTheVerdict) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  arrive(other_);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  // Whoever was held up since it arrived finds that it has completed.
  EXPECT_TRUE(one_.broken());
  EXPECT_FALSE(one_.late());
  Patience patience = at_once();
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  EXPECT_FALSE(one_.begin()) << "the next operation has the verdict to take";
}

TEST_F(Meetings, GoesOnWithoutThoseWhoHaveDoneTheirPart) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  Patience patience = at_once();
  ASSERT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  ASSERT_EQ(other_.await_arrivals(patience), Meeting::kMet);
  one_.set_phase(1);
  other_.set_phase(1);
  world_.board().set_attached(Rank(1), false);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_EQ(one_.await_phase(1, patience), Meeting::kMet);
  one_.set_phase(2);
  EXPECT_EQ(one_.await_phase(2, patience), Meeting::kBroken) << "who is gone will not come to it";
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, NoticesOneWhoWasGoneBeforeItsArrivalWasSeen) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  world_.board().set_attached(Rank(1), false);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  Patience patience = at_once();
  ASSERT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  one_.set_phase(1);
  EXPECT_EQ(one_.await_phase(1, patience), Meeting::kBroken);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, EndsWhatIsInFlightWhenItIsRevoked) {
  for (Channel* channel : {&one_, &other_}) ASSERT_TRUE(channel->begin());
  arrive(one_);
  arrive(other_);
  world_.board().break_group(kGroupId, {Code::kAborted, -1, "no more", 0}, engine::Board::End::kForAll);
  EXPECT_TRUE(one_.late());
}

// Goal:   an orderly exit under `muster run` fails nobody at whose operation all had arrived.
// Method: this member is held up between its arrival and its look at the verdict; meanwhile the other ends
//         the operation, leaves, and its launcher says that it will not come back.
TEST_F(Meetings, CompletesWhatHadComeBeforeAMemberWasCalledAbsent) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  arrive(other_, std::byte{5});
  world_.board().set_attached(Rank(1), false);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  world_.board().stand(kGroupId, &kLost);
  EXPECT_FALSE(one_.late());
  Patience patience = at_once();
  ASSERT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  EXPECT_EQ(one_.arrival(1).payload[0], std::byte{5});
  EXPECT_FALSE(one_.begin());
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Meetings, KnowsWhoHasLetGoOfAnOperation) {
  EXPECT_FALSE(one_.let_go(1));
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_FALSE(one_.let_go(1)) << "it waits on until it hears";
  other_.take_verdict();
  EXPECT_TRUE(one_.let_go(1));
  EXPECT_FALSE(other_.let_go(0)) << "who has heard itself is in the next generation";
  one_.take_verdict();
  world_.board().set_attached(Rank(1), false);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_TRUE(one_.let_go(1)) << "who is gone does not wait";
  one_.take_verdict();
  world_.board().break_group(kGroupId, {Code::kAborted, -1, "no more", 0}, engine::Board::End::kForAll);
  EXPECT_TRUE(one_.let_go(0)) << "an end for all";
}

TEST_F(Meetings, TellsALateArrivalSo) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  arrive(other_);
  EXPECT_TRUE(other_.late());
}

TEST_F(Meetings, BeginsAnewInTheNextGeneration) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_EQ(one_.take_verdict(), 1u);
  EXPECT_EQ(world_.board().verdict_of(kGroupId, 1)->text, "rank 1 died");
  ASSERT_TRUE(one_.begin());
  arrive(one_, std::byte{7});
  // The other has not taken the verdict: its old arrivals do not count.
  arrive(other_);
  Patience patience = at_once();
  EXPECT_EQ(one_.await_arrivals(patience), Meeting::kBroken);
  one_.take_verdict();
  other_.take_verdict();
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_, std::byte{7});
  arrive(other_, std::byte{8});
  EXPECT_EQ(other_.await_arrivals(patience), Meeting::kMet);
  EXPECT_EQ(other_.arrival(0).payload[0], std::byte{7});
}

TEST_F(Meetings, DoesNotTakeTheSlotOfAnotherLifeForAnArrival) {
  ASSERT_TRUE(one_.begin());
  ASSERT_TRUE(other_.begin());
  arrive(one_);
  arrive(other_);
  Patience patience = at_once();
  ASSERT_EQ(one_.await_arrivals(patience), Meeting::kMet);
  EXPECT_TRUE(one_.unchanged(1));
  world_.reattach(1);
  EXPECT_FALSE(one_.unchanged(1)) << "a payload that was read from there does not count";
}

// Goal:   a death is told also to who had not yet heard of an earlier end of the group.
TEST_F(Meetings, HearsOfEachEndInTurnWhileSomebodyIsMissing) {
  world_.board().break_group(kGroupId, {Code::kAborted, 1, "aborted", 1}, engine::Board::End::kForAll);
  world_.board().set_attached(Rank(1), false);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  EXPECT_EQ(one_.take_verdict(), 1u);
  EXPECT_FALSE(one_.begin()) << "the death is still to be told";
  EXPECT_EQ(one_.take_verdict(), 2u);
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, ForgetsOldEndsWhenAllAreBack) {
  world_.board().break_group(kGroupId, {Code::kAborted, 1, "aborted", 1}, engine::Board::End::kForAll);
  world_.board().break_group(kGroupId, kLost, engine::Board::End::kDeparture);
  world_.reattach(1);
  EXPECT_EQ(one_.take_verdict(), 1u);
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, LetsNobodyBeginWhileAMemberWillNotCome) {
  world_.board().stand(kGroupId, &kLost);
  EXPECT_FALSE(one_.begin());
  one_.take_verdict();
  EXPECT_FALSE(one_.begin());
  world_.board().stand(kGroupId, nullptr);
  EXPECT_TRUE(one_.begin());
}

TEST_F(Meetings, MatchesMessagesInOrder) {
  Patience patience = at_once();
  for (int i = 0; i < 3; ++i) {
    const std::byte value{static_cast<unsigned char>(i)};
    one_.send(1, 5, kSame, {shm::Place::Kind::kInline, 0, 0}, std::span(&value, 1));
    Arrival arrival;
    ASSERT_EQ(other_.await_message(0, 6, &arrival, patience), Meeting::kMet);
    EXPECT_EQ(arrival.payload[0], value);
    other_.acknowledge(0, i == 2);
    bool disagreed = false;
    ASSERT_EQ(one_.await_received(1, &disagreed, patience), Meeting::kMet);
    EXPECT_EQ(disagreed, i == 2);
  }
}

TEST_F(Meetings, WritesAStageAgainOnlyWhenItsReadersAreDone) {
  std::vector<std::byte> segment(shm::kDirectSeatsOffset);
  const std::uint32_t recording = 0;
  FlightRing flight(segment.data(), &recording);
  Stages stages(segment.data(), flight);
  const Patience patience = at_once();
  const auto uses = [&](std::uint32_t index) {
    return reinterpret_cast<const shm::DirectHeader*>(segment.data())->stage_uses[index];
  };
  ASSERT_EQ(stages.take(one_, patience).place.index, 0u);
  ASSERT_TRUE(one_.begin());
  ASSERT_EQ(stages.take(one_, patience).place.index, 1u);
  ASSERT_TRUE(one_.begin());
  // Nobody said that he is done with operation 1, so the deadline passes; then the readers find the use
  // changed.
  EXPECT_EQ(uses(0), 1u);
  const Stages::Stage again = stages.take(one_, patience);
  EXPECT_EQ(again.place.index, 0u);
  EXPECT_EQ(again.place.value, 2u);
  EXPECT_TRUE(asked_.empty()) << "nobody is blamed for it";
}

}  // namespace
}  // namespace muster::client::test
