#include "scheduler/run/pair_place.hpp"

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using Side = PairPlace::Side;

// A pair whose starts are read and then arrive, each known by its value.
class Pair {
 public:
  Stamp read(Side side, std::uint32_t tag) { return place.stamp(side, tag); }
  // The values that meet, the sender's first; {0, 0}: the start waits.
  std::pair<std::uint64_t, std::uint64_t> arrive(Side side, std::uint32_t tag, const Stamp& stamp,
                                                 std::uint64_t value) {
    const auto met = place.arrive(side, tag, arrival(stamp, value));
    return met ? std::pair(met->sender.value, met->receiver.value)
               : std::pair<std::uint64_t, std::uint64_t>();
  }
  static Arrival arrival(const Stamp& stamp, std::uint64_t value) {
    Arrival arrival;
    arrival.value = value;
    arrival.stamp = stamp;
    return arrival;
  }
  std::size_t waiting() const {
    std::vector<Arrival> all;
    place.waiting(all);
    return all.size();
  }
  std::size_t end(std::uint64_t fault) {
    std::vector<Arrival> waited;
    place.end(std::make_shared<Cause>(Cause{Code::kTimeout, -1, "", fault}), Epochs::Why::kOther, waited);
    return waited.size();
  }

  PairPlace place{Epochs(), Epochs::Member(), Epochs::Member(), false};
};

constexpr std::pair<std::uint64_t, std::uint64_t> kWaits{0, 0};

TEST(PairPlace, MatchesByTagInAnyOrder) {
  Pair pair;
  const Stamp send_1 = pair.read(Side::kSender, 1);
  const Stamp send_2 = pair.read(Side::kSender, 2);
  const Stamp receive_2 = pair.read(Side::kReceiver, 2);
  const Stamp receive_1 = pair.read(Side::kReceiver, 1);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 2, receive_2, 22), kWaits);
  EXPECT_EQ(pair.arrive(Side::kSender, 1, send_1, 11), kWaits);
  EXPECT_EQ(pair.waiting(), 2u);
  EXPECT_EQ(pair.arrive(Side::kSender, 2, send_2, 12), std::pair(12ul, 22ul));
  EXPECT_EQ(pair.arrive(Side::kReceiver, 1, receive_1, 21), std::pair(11ul, 21ul));
  EXPECT_EQ(pair.waiting(), 0u);
}

// Goal:   a rank that is back hears of no end from before, and meets who has heard of it.
TEST(PairPlace, SeatsARankThatIsBackInThePresent) {
  Pair pair;
  pair.end(1);
  pair.place.attached(Side::kReceiver, false);
  pair.place.move_on(Side::kSender, 1);
  const Stamp send = pair.read(Side::kSender, 1);
  const Stamp receive = pair.read(Side::kReceiver, 1);
  EXPECT_EQ(receive.epoch, send.epoch);
  EXPECT_EQ(pair.arrive(Side::kSender, 1, send, 11), kWaits);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 1, receive, 21), std::pair(11ul, 21ul));
}

// Goal:   starts of one tag match in the order in which they were read, whichever lane is ready first.
TEST(PairPlace, KeepsTheOrderOfATag) {
  Pair pair;
  const Stamp first = pair.read(Side::kSender, 5);
  const Stamp second = pair.read(Side::kSender, 5);
  const Stamp third = pair.read(Side::kReceiver, 5);
  const Stamp fourth = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, second, 2), kWaits);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, third, 3), kWaits) << "it is for the first";
  EXPECT_EQ(pair.arrive(Side::kSender, 5, first, 1), std::pair(1ul, 3ul));
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, fourth, 4), std::pair(2ul, 4ul));
}

TEST(PairPlace, GivesAPlaceBackToTheNextStartOfTheTag) {
  Pair pair;
  const Stamp gone = pair.read(Side::kSender, 5);
  const Stamp second = pair.read(Side::kSender, 5);
  pair.place.give_back(Side::kSender, gone);
  const Stamp other = pair.read(Side::kSender, 6);
  const Stamp again = pair.read(Side::kSender, 5);
  EXPECT_EQ(again.number, gone.number);
  EXPECT_NE(other.number, gone.number);
  const Stamp receive = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, receive, 3), kWaits);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, second, 2), kWaits);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, again, 1), std::pair(1ul, 3ul));
}

// Goal:   starts that have no part in the place, each with a tag of its own, leave nothing behind.
TEST(PairPlace, KeepsNoPlaceThatNobodyWaitsBehind) {
  Pair pair;
  const Stamp gone = pair.read(Side::kSender, 5);
  pair.place.give_back(Side::kSender, gone);
  const Stamp again = pair.read(Side::kSender, 5);
  EXPECT_GT(again.number, gone.number) << "its record is gone";
  const Stamp receive = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, receive, 3), kWaits);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, again, 1), std::pair(1ul, 3ul));
}

// Goal:   a start of one side in an ended epoch never meets a start of the other side in the next.
TEST(PairPlace, BeginsAnewInEachEpoch) {
  Pair pair;
  const Stamp old_send = pair.read(Side::kSender, 5);
  const Stamp old_receive = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, old_send, 1), kWaits);
  EXPECT_EQ(pair.end(1), 1u);
  EXPECT_EQ(pair.waiting(), 0u);
  EXPECT_EQ(pair.end(1), 0u) << "a place ends once of a fault";
  EXPECT_TRUE(pair.place.epochs().has_ended(old_receive.epoch));
  pair.place.forget(Side::kReceiver, old_receive);
  const Stamp late = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(late.epoch, 1u) << "it has not heard of the end";
  pair.place.move_on(Side::kSender, 1);
  const Stamp send = pair.read(Side::kSender, 5);
  EXPECT_EQ(send.epoch, 2u);
  EXPECT_EQ(send.number, 1u);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, send, 2), kWaits);
  pair.place.heard(Side::kReceiver, 1);
  const Stamp receive = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(receive.number, 1u);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, receive, 3), std::pair(2ul, 3ul));
}

TEST(PairPlace, TakesAnArrivalBack) {
  Pair pair;
  const Stamp send = pair.read(Side::kSender, 5);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, send, 1), kWaits);
  pair.place.withdraw(Side::kSender, Pair::arrival(send, 1));
  EXPECT_EQ(pair.waiting(), 0u);
  const Stamp receive = pair.read(Side::kReceiver, 5);
  EXPECT_EQ(pair.arrive(Side::kReceiver, 5, receive, 2), kWaits);
  EXPECT_EQ(pair.arrive(Side::kSender, 5, send, 1), std::pair(1ul, 2ul));
}

}  // namespace
}  // namespace muster::scheduler
