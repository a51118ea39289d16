#include "daemon/supervisor/peers/liveness.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Nanos kPeriod = Liveness::kPeriod;

// ---- one node, by hand ---------------------------------------------------------------------------

class OneNode : public ::testing::Test {
 protected:
  // Ticks each period up to that time.
  Liveness::Turn tick_to(Instant end) {
    Liveness::Turn last;
    while (now_ < end) {
      now_ += kPeriod;
      last = node_.tick(now_);
      for (const auto& loss : last.lost) lost_.push_back(loss.peer);
    }
    return last;
  }
  Instant now_{100s};
  Liveness node_{now_};
  std::vector<std::string> lost_;
};

// The figures of the page in daemon/supervisor.
TEST_F(OneNode, SuspectsAfterThreePeriodsAndLosesAfterSeven) {
  EXPECT_EQ(kPeriod, 200ms);
  node_.watch("b", now_);
  EXPECT_THAT(tick_to(now_ + 400ms).suspect, IsEmpty());
  const Liveness::Turn third = tick_to(now_ + 200ms);
  EXPECT_THAT(third.suspect, ElementsAre("b"));
  EXPECT_THAT(third.beats, ElementsAre("b"));
  for (int period = 4; period < 7; ++period) {
    const Liveness::Turn turn = tick_to(now_ + kPeriod);
    EXPECT_THAT(turn.suspect, ElementsAre("b")) << "each period";
    EXPECT_THAT(turn.lost, IsEmpty());
  }
  EXPECT_EQ(node_.peers().at("b").doubts, 1u);
  const Liveness::Turn seventh = tick_to(now_ + kPeriod);
  ASSERT_EQ(seventh.lost.size(), 1u);
  EXPECT_EQ(seventh.lost[0].peer, "b");
  EXPECT_EQ(seventh.lost[0].why.code(), Code::kPeerLost);
  EXPECT_THAT(seventh.lost[0].why.message(), HasSubstr("for 1.4 s"));
  EXPECT_THAT(seventh.lost[0].why.message(), Not(HasSubstr("one way")));
  EXPECT_THAT(seventh.suspect, IsEmpty());
}

TEST_F(OneNode, LosesAPeerOnceUntilItIsUpAnew) {
  node_.watch("b", now_);
  tick_to(now_ + 1'400ms);
  EXPECT_THAT(lost_, ElementsAre("b"));
  node_.heard("b", now_, now_);
  EXPECT_EQ(node_.silence("b", now_), 1'400ms) << "what it sends brings it back no more";
  EXPECT_FALSE(node_.echo("b", 5s, now_));
  const Liveness::Turn farewell = tick_to(now_ + 1'200ms);
  EXPECT_THAT(farewell.beats, ElementsAre("b"));
  EXPECT_THAT(farewell.suspect, IsEmpty());
  EXPECT_THAT(tick_to(now_ + kPeriod).beats, IsEmpty()) << "nor is it spoken to for ever";
  tick_to(now_ + 60s);
  EXPECT_THAT(lost_, ElementsAre("b"));
  node_.watch("b", now_);
  EXPECT_EQ(node_.silence("b", now_), Nanos(0));
  tick_to(now_ + 1'400ms);
  EXPECT_THAT(lost_, ElementsAre("b", "b"));
  EXPECT_EQ(node_.peers().at("b").doubts, 2u);
}

TEST_F(OneNode, TakesAnyEvidence) {
  node_.watch("b", now_);
  node_.watch("c", now_);
  for (int i = 0; i < 50; ++i) {
    tick_to(now_ + 600ms);
    node_.heard("b", now_, now_);
    EXPECT_FALSE(node_.peers().at("b").suspect);
    EXPECT_EQ(node_.silence("b", now_), Nanos(0));
  }
  EXPECT_THAT(lost_, ElementsAre("c"));
  EXPECT_EQ(node_.peers().at("b").doubts, 50u);
}

// Goal:   a voucher gives the time when the peer lived; an old one moves the deadline, but clears no
//         suspicion.
TEST_F(OneNode, TakesAWordForWhenItIsGood) {
  node_.watch("b", now_);
  const Instant begun = now_;
  tick_to(begun + 1'200ms);
  node_.heard("b", begun + 400ms, now_);
  EXPECT_TRUE(node_.peers().at("b").suspect);
  tick_to(begun + 1'600ms);
  EXPECT_THAT(lost_, IsEmpty());
  node_.heard("b", begun + 200ms, now_);  // older than what is known
  EXPECT_EQ(node_.peers().at("b").doubts, 1u);
  tick_to(begun + 1'800ms);
  EXPECT_THAT(lost_, ElementsAre("b"));
  node_.watch("b", now_);
  node_.heard("b", now_ + 1h, now_);  // of the future: it counts as now
  tick_to(now_ + 1'400ms);
  EXPECT_THAT(lost_, ElementsAre("b", "b"));
}

TEST_F(OneNode, BelievesAPeerThatHearsNothing) {
  node_.watch("b", now_);
  const auto hear_for = [this](Nanos time) {
    for (const Instant end = now_ + time; now_ < end;) {
      tick_to(now_ + kPeriod);
      node_.heard("b", now_, now_);
    }
  };
  hear_for(1'200ms);
  EXPECT_FALSE(node_.echo("b", 1'400ms, now_)) << "of the time before it was up";
  hear_for(1s);
  EXPECT_FALSE(node_.echo("b", 1'399ms, now_));
  EXPECT_FALSE(node_.echo("stranger", 1h, now_));
  const auto loss = node_.echo("b", 1'600ms, now_);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->why.code(), Code::kPeerLost);
  EXPECT_THAT(loss->why.message(), HasSubstr("one way: node b hears nothing of this node"));
  EXPECT_THAT(loss->why.message(), HasSubstr("1.6 s"));
  EXPECT_FALSE(node_.echo("b", 1'800ms, now_)) << "once";
  EXPECT_EQ(node_.silence("b", now_), Nanos::max());
  node_.watch("b", now_);
  hear_for(2s);
  const auto given_up = node_.echo("b", Nanos::max(), now_);
  ASSERT_TRUE(given_up);
  EXPECT_THAT(given_up->why.message(), HasSubstr("has given this node up"));
}

TEST_F(OneNode, AccusesNobodyForItsOwnSleep) {
  node_.watch("b", now_);
  for (int i = 0; i < 50; ++i) {
    tick_to(now_ + kPeriod);
    node_.heard("b", now_, now_);
  }
  now_ += 5s;
  EXPECT_FALSE(node_.echo("b", 5s, now_)) << "b has heard nothing, because this node slept";
  EXPECT_THAT(node_.tick(now_).lost, IsEmpty());
  EXPECT_LE(node_.silence("b", now_), kPeriod) << "nor was b silent for so long, as far as is known";
  tick_to(now_ + 1s);
  EXPECT_FALSE(node_.echo("b", 6s, now_));
  EXPECT_THAT(lost_, IsEmpty());
  node_.heard("b", now_, now_);
  tick_to(now_ + 400ms);
  EXPECT_TRUE(node_.echo("b", 1'400ms, now_)) << "it had time to hear this node again";
}

// Goal:   the deadline moves by the sleep, no more.
TEST_F(OneNode, StillLosesWhoIsSilentAfterTheSleep) {
  node_.watch("b", now_);
  tick_to(now_ + 600ms);
  now_ += kPeriod + 3s;
  EXPECT_THAT(node_.tick(now_).suspect, ElementsAre("b"));
  tick_to(now_ + 400ms);
  EXPECT_THAT(lost_, IsEmpty());
  tick_to(now_ + kPeriod);
  EXPECT_THAT(lost_, ElementsAre("b"));
}

// ---- two nodes and the ways between them ---------------------------------------------------------

// From a seed. Links are TCP as far as it matters here: in order; each loss costs a time-out that doubles.
//
// Owns    both nodes and what is under way.
// Thread  one.
// Bound   -
// Fails   never.
class TwoNodes {
 public:
  struct Way {  // from the node of that index to the other
    double datagrams_lost = 0;
    double segments_lost = 0;
  };
  struct Decision {
    Instant at{0};
    std::string why;
  };

  explicit TwoNodes(std::uint64_t seed) : chance_(seed) {
    for (const std::size_t n : {0u, 1u}) {
      nodes_[n].watch(kPeer, Instant(0));
      ticks_[n] = span(0ns, kPeriod);
      push({ticks_[n], 0, Kind::kTick, n, {}, {}});
    }
  }

  std::array<Way, 2> ways;
  std::array<bool, 2> vouched{};  // somebody else hears this node's peer, always
  std::array<std::optional<Decision>, 2> lost;
  Nanos jitter = 20ms;  // of a tick
  Instant now{0};

  void run(Instant end) {
    while (!waiting_.empty() && waiting_.top().at <= end) {
      const Event event = waiting_.top();
      waiting_.pop();
      now = event.at;
      if (event.at >= dead_[event.node]) continue;
      if (event.at < asleep_[event.node]) {
        Event later = event;
        later.at = asleep_[event.node];
        push(later);
        continue;
      }
      happen(event);
    }
    now = end;
  }
  void kill(std::size_t n) { dead_[n] = now; }
  void sleep(std::size_t n, Nanos time) { asleep_[n] = now + time; }
  bool runs(std::size_t n) const { return !lost[n]; }
  std::uint64_t doubts(std::size_t n) const { return nodes_[n].peers().at(kPeer).doubts; }
  Nanos span(Nanos least, Nanos most) {
    return Nanos(std::uniform_int_distribution<std::int64_t>(least.count(), most.count())(chance_));
  }

 private:
  enum class Kind : std::uint8_t { kTick, kDatagram, kPing, kPong };
  struct Event {
    Instant at;
    std::uint64_t order;
    Kind kind;
    std::size_t node;  // to which it happens
    Nanos silence;     // of a datagram
    Instant sent;      // for the last time, of what came by a link
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };
  static constexpr char kPeer[] = "peer";

  bool is_lost(double share) { return std::uniform_real_distribution<double>(0, 1)(chance_) < share; }
  void push(Event event) {
    event.order = order_++;
    waiting_.push(event);
  }
  void send(std::size_t from, Nanos silence) {
    if (!is_lost(ways[from].datagrams_lost))
      push({now + span(50us, 2ms), 0, Kind::kDatagram, 1 - from, silence, now});
  }
  void send_by_link(std::size_t from, Kind what) {
    Instant sent = now;
    for (Nanos again = 200ms; is_lost(ways[from].segments_lost); again *= 2) {
      sent += again;
      if (again > 60s) return;
    }
    Instant& last = arrived_[from];
    last = std::max(last, sent + span(50us, 2ms));
    push({last, 0, what, 1 - from, {}, sent});
  }
  void decide(std::size_t n, const Liveness::Loss& loss) { lost[n] = {now, loss.why.message()}; }
  void happen(const Event& event) {
    Liveness& node = nodes_[event.node];
    if (event.kind == Kind::kTick) {
      const Liveness::Turn turn = node.tick(now);
      for (const auto& loss : turn.lost) decide(event.node, loss);
      if (!turn.beats.empty()) send(event.node, node.silence(kPeer, now));
      if (!turn.suspect.empty()) {
        send_by_link(event.node, Kind::kPing);
        if (vouched[event.node]) node.heard(kPeer, now - 50ms, now);
      }
      Instant& nominal = ticks_[event.node];
      nominal = std::max(nominal + kPeriod, now);
      return push({nominal + span(0ns, jitter), 0, Kind::kTick, event.node, {}, {}});
    }
    if (event.sent >= dead_[1 - event.node]) return;  // the other end died before it sent that again
    node.heard(kPeer, now, now);
    if (event.kind == Kind::kPing) send_by_link(event.node, Kind::kPong);
    if (event.kind == Kind::kDatagram)
      if (const auto loss = node.echo(kPeer, event.silence, now)) decide(event.node, *loss);
  }

  std::mt19937_64 chance_;
  std::array<Liveness, 2> nodes_{Liveness(Instant(0)), Liveness(Instant(0))};
  std::array<Instant, 2> dead_{Instant::max(), Instant::max()};
  std::array<Instant, 2> asleep_{};
  std::array<Instant, 2> ticks_{};    // without their jitter
  std::array<Instant, 2> arrived_{};  // the last segment from that node
  std::priority_queue<Event, std::vector<Event>, std::greater<>> waiting_;
  std::uint64_t order_ = 0;
};

// Goal:   slow is not dead, and a way that loses some is not cut.
TEST(Liveness, LosesNobodyInADayOfLossyWays) {
  TwoNodes pair(20'261'127);
  pair.ways = {{{0.05, 0.05}, {0.05, 0.05}}};
  pair.run(24h);
  for (const std::size_t n : {0u, 1u}) {
    EXPECT_FALSE(pair.lost[n]) << pair.lost[n]->why << ", after "
                               << std::chrono::duration<double>(pair.lost[n]->at).count() << " s";
    // One silence of three periods in about 8,000: the ways did lose something.
    EXPECT_GT(pair.doubts(n), 20u);
    EXPECT_LT(pair.doubts(n), 200u);
  }
}

// Goal:   a node that drops only datagrams loses no peer: the link is evidence. And it is the only one here.
TEST(Liveness, LosesNobodyWhereDatagramsAloneAreDropped) {
  TwoNodes pair(1);
  pair.ways = {{{1, 0}, {1, 0}}};
  pair.run(2h);
  for (const std::size_t n : {0u, 1u}) {
    EXPECT_FALSE(pair.lost[n]) << pair.lost[n]->why;
    EXPECT_GT(pair.doubts(n), 1'000u);
  }
  TwoNodes one_way(2);
  one_way.ways = {{{1, 0}, {0, 0}}};
  one_way.run(2h);
  EXPECT_FALSE(one_way.lost[0] || one_way.lost[1]);
  pair.ways = {{{1, 1}, {1, 1}}};
  const Instant cut = pair.now;
  pair.run(cut + 3s);
  EXPECT_TRUE(pair.lost[0] && pair.lost[1]);
}

TEST(Liveness, SeesADeadHostInTime) {
  std::vector<Nanos> times;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    TwoNodes pair(seed);
    pair.jitter = 50ms;
    pair.ways = {{{0.05, 0.05}, {0.05, 0.05}}};
    pair.run(pair.span(0ns, 5s));
    ASSERT_TRUE(pair.runs(0) && pair.runs(1)) << "seed " << seed;
    const Instant death = pair.now;
    pair.kill(1);
    pair.run(death + 5s);
    ASSERT_TRUE(pair.lost[0]) << "seed " << seed;
    EXPECT_THAT(pair.lost[0]->why, Not(HasSubstr("one way")));
    times.push_back(pair.lost[0]->at - death);
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times.back(), 3s);
  EXPECT_LT(times[times.size() * 99 / 100], 2'200ms);
  EXPECT_GT(times[times.size() / 2], 1'100ms) << "it was heard shortly before its death";
}

TEST(Liveness, SeesAWayThatIsDeadInOneDirectionAtBothEnds) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    TwoNodes pair(seed);
    pair.ways = {{{0.05, 0.05}, {0.05, 0.05}}};
    pair.run(pair.span(2s, 5s));
    const Instant cut = pair.now;
    pair.ways[0] = {1, 1};
    pair.run(cut + 3s);
    ASSERT_TRUE(pair.lost[0] && pair.lost[1]) << "seed " << seed;
    EXPECT_THAT(pair.lost[0]->why, HasSubstr("one way")) << "seed " << seed;
    EXPECT_THAT(pair.lost[1]->why, HasSubstr("nothing was heard of it")) << "seed " << seed;
  }
}

// Goal:   a node that slept accuses nobody, whatever lies unread; nor is it accused while others vouch.
TEST(Liveness, AccusesNobodyAfterSleep) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TwoNodes pair(seed);
    pair.vouched = {false, true};
    for (int i = 0; i < 20; ++i) {
      pair.run(pair.now + pair.span(0ns, 4s));
      pair.sleep(0, pair.span(500ms, 20s));
    }
    pair.run(pair.now + 60s);
    ASSERT_FALSE(pair.lost[0]) << "seed " << seed << ": " << pair.lost[0]->why;
    ASSERT_FALSE(pair.lost[1]) << "seed " << seed << ": " << pair.lost[1]->why;
  }
}

}  // namespace
}  // namespace muster::supervisor
