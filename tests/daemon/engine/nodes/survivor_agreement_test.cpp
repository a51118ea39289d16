// Agreement on the survivors of a group over nodes: by hand, and in seeded courses in which nodes die, are
// parted, come back and come late, and messages of different nodes overtake each other.
#include "daemon/engine/nodes/survivor_agreement.hpp"

#include "daemon/engine/nodes/agreement_wire.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>

namespace muster::engine {
namespace {

using Kind = AgreementMessage::Kind;
using ::testing::Each;

// Nodes with their members, and what is on its way between them. A node that begins again is another life.
class World {
 public:
  World(std::vector<std::uint32_t> members, std::optional<std::uint32_t> tie_breaker)
      : members_(std::move(members)), tie_breaker_(tie_breaker), nodes_(members_.size()) {
    for (std::uint32_t n = 0; n < size(); ++n) begin(n, true);
    for (std::uint32_t a = 0; a < size(); ++a)
      for (std::uint32_t b = 0; b < a; ++b) link(a, b);
  }

  struct Node {
    std::unique_ptr<SurvivorAgreement> core;
    bool lives = false;
    MemberBits attached, asks;
    std::vector<SurvivorAgreement::Decision> decided;  // in this life
  };
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  Node& operator[](std::uint32_t n) { return nodes_[n]; }
  bool linked(std::uint32_t a, std::uint32_t b) const {
    return links_.contains({std::min(a, b), std::max(a, b)});
  }

  void begin(std::uint32_t n, bool original) {
    SurvivorAgreement::Options options;
    for (std::uint32_t p = 0; p < size(); ++p)
      options.place_of.insert(options.place_of.end(), members_[p], p);
    options.nodes = size();
    options.here = n;
    options.tie_breaker = tie_breaker_;
    options.known.assign(size(), original);
    nodes_[n] = {std::make_unique<SurvivorAgreement>(options),
                 true,
                 MemberBits(members_[n], original),
                 MemberBits(members_[n]),
                 {}};
  }
  void link(std::uint32_t a, std::uint32_t b) {
    if (!nodes_[a].lives || !nodes_[b].lives || linked(a, b)) return;
    ways_[{a, b}].clear();
    ways_[{b, a}].clear();
    links_.insert({std::min(a, b), std::max(a, b)});
    nodes_[a].core->set_fate(b, NodeFate::kLinked);
    nodes_[b].core->set_fate(a, NodeFate::kLinked);
    post(a);
    post(b);
  }
  // One end sees it; the other one may see it later.
  void cut(std::uint32_t a, std::uint32_t b) {
    links_.erase({std::min(a, b), std::max(a, b)});
    ways_[{a, b}].clear();
    ways_[{b, a}].clear();
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)})
      if (nodes_[from].lives) fate(from, to, NodeFate::kApart);
  }
  void fate(std::uint32_t at, std::uint32_t of, NodeFate fate) {
    nodes_[at].core->set_fate(of, fate);
    post(at);
  }
  void kill(std::uint32_t n) {
    nodes_[n].lives = false;
    for (std::uint32_t other = 0; other < size(); ++other)
      if (linked(n, other)) cut(n, other);
  }
  void ask(std::uint32_t n, std::size_t member) {
    nodes_[n].asks[member] = nodes_[n].attached[member];
    say(n);
  }
  void ask_all(std::uint32_t n) {
    nodes_[n].asks = nodes_[n].attached;
    say(n);
  }
  void lose_member(std::uint32_t n, std::size_t member) {
    nodes_[n].attached[member] = nodes_[n].asks[member] = false;
    say(n);
  }
  // Passes the state of its members on to the node.
  void say(std::uint32_t n) {
    MemberBits waited(members_[n]);
    for (std::size_t m = 0; m < waited.size(); ++m) waited[m] = nodes_[n].attached[m] && !nodes_[n].asks[m];
    nodes_[n].core->set_local(nodes_[n].asks, waited);
    post(n);
  }
  void tick(std::uint32_t n) {
    if (!nodes_[n].lives) return;
    nodes_[n].core->tick(now_);
    post(n);
  }
  // The next message of one way, drawn among those that have one. False: nothing is on its way.
  bool deliver(std::mt19937_64& random) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ways;
    for (const auto& [way, messages] : ways_)
      if (!messages.empty()) ways.push_back(way);
    if (ways.empty()) return false;
    const auto [from, to] = ways[random() % ways.size()];
    const std::vector<std::byte> bytes = std::move(ways_[{from, to}].front());
    ways_[{from, to}].pop_front();
    const auto sent = read_agreement(bytes);
    EXPECT_TRUE(sent.has_value());
    nodes_[to].core->hear(from, sent->message);
    post(to);
    return true;
  }
  void run(std::mt19937_64& random) {
    for (int turn = 0; turn < 200; ++turn) {
      now_ += std::chrono::milliseconds(100);
      for (std::uint32_t n = 0; n < size(); ++n) tick(n);
      while (deliver(random)) {
      }
    }
  }
  void pass(Nanos time) { now_ += time; }

 private:
  // Messages go through their bytes; a decision is noted.
  void post(std::uint32_t n) {
    for (auto& out : nodes_[n].core->take_outgoing())
      if (linked(n, out.to)) ways_[{n, out.to}].push_back(bytes_of_agreement({7, std::move(out.message)}));
    if (auto decision = nodes_[n].core->take_decision()) {
      nodes_[n].decided.push_back(*std::move(decision));
      // A member in the list has its answer; any other asks on.
      std::size_t first = 0;
      for (std::uint32_t p = 0; p < n; ++p) first += members_[p];
      for (std::size_t m = 0; m < members_[n]; ++m)
        if (nodes_[n].decided.back().took_part && nodes_[n].decided.back().survivors[first + m])
          nodes_[n].asks[m] = false;
      say(n);
    }
  }

  const std::vector<std::uint32_t> members_;
  const std::optional<std::uint32_t> tie_breaker_;
  std::vector<Node> nodes_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> links_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::vector<std::byte>>> ways_;
  Instant now_{0};
};

std::string text_of(const MemberBits& bits) {
  std::string text;
  for (const bool bit : bits) text += bit ? '1' : '0';
  return text;
}

// The one list of the latest decision of a node, or "none".
std::string latest(World& world, std::uint32_t n) {
  const auto& decided = world[n].decided;
  return decided.empty() ? "none" : text_of(decided.back().survivors);
}

TEST(SurvivorAgreement, LeaveOutAMemberThatDied) {
  std::mt19937_64 random(1);
  World world({2, 2}, std::nullopt);
  world.lose_member(1, 0);
  world.ask_all(0);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "none") << "a member of the other node is attached and has not asked";
  EXPECT_TRUE(world[0].core->node(1).waited[1]);
  world.ask_all(1);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "1101");
  EXPECT_EQ(latest(world, 1), "1101");
}

TEST(SurvivorAgreement, GoOnWithoutANodeThatIsKnownToBeDead) {
  std::mt19937_64 random(2);
  World world({1, 3}, std::nullopt);
  world.kill(1);
  world.ask_all(0);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "none") << "nobody has said what became of it";
  EXPECT_FALSE(world[0].core->in_minority());
  world.fate(0, 1, NodeFate::kDead);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "1000") << "one of four";
}

void part(World& world, const std::vector<std::uint32_t>& side) {
  for (const std::uint32_t a : side)
    for (std::uint32_t b = 0; b < world.size(); ++b)
      if (std::find(side.begin(), side.end(), b) == side.end()) {
        world.cut(a, b);
        world.fate(a, b, NodeFate::kSilent);
        world.fate(b, a, NodeFate::kSilent);
      }
}

TEST(SurvivorAgreement, LetTheMajorityGoOnWhenNodesAreSilent) {
  std::mt19937_64 random(3);
  World world({2, 2, 2}, std::nullopt);
  part(world, {1});
  for (std::uint32_t n = 0; n < 3; ++n) world.ask_all(n);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "110011");
  EXPECT_EQ(latest(world, 2), "110011");
  EXPECT_EQ(latest(world, 1), "none");
  EXPECT_TRUE(world[1].core->in_minority());
  EXPECT_FALSE(world[0].core->in_minority());
}

TEST(SurvivorAgreement, NeedTheTieBreakerAtExactlyHalf) {
  for (const auto tie_breaker : {std::optional<std::uint32_t>(), std::optional<std::uint32_t>(2)}) {
    std::mt19937_64 random(4);
    World world({2, 2, 2, 2}, tie_breaker);
    part(world, {0, 1});
    for (std::uint32_t n = 0; n < 4; ++n) world.ask_all(n);
    world.run(random);
    EXPECT_EQ(latest(world, 0), "none");
    EXPECT_TRUE(world[0].core->in_minority());
    EXPECT_EQ(latest(world, 3), tie_breaker ? "00001111" : "none");
    EXPECT_EQ(world[3].core->in_minority(), !tie_breaker);
  }
}

// Goal:   silence of some and evidence of others do not add up: half of the members are no majority of those
//         that are left.
TEST(SurvivorAgreement, CountTheDeadWhenOthersAreSilent) {
  std::mt19937_64 random(5);
  World world({1, 1, 1, 1, 1}, std::nullopt);
  world.kill(3);
  world.kill(4);
  for (std::uint32_t n = 0; n < 3; ++n)
    for (const std::uint32_t dead : {3U, 4U}) world.fate(n, dead, NodeFate::kDead);
  part(world, {2});
  for (std::uint32_t n = 0; n < 3; ++n) world.ask_all(n);
  world.run(random);
  EXPECT_EQ(latest(world, 0), "none") << "two of five";
  EXPECT_TRUE(world[0].core->in_minority());
  world.fate(0, 2, NodeFate::kDead);
  world.fate(1, 2, NodeFate::kDead);
  world.run(random);
  EXPECT_EQ(latest(world, 1), "11000") << "all deaths are known";
}

// Goal:   a node that has promised a ballot accepts nothing of an earlier one, and reports what it has
//         accepted.
TEST(SurvivorAgreement, KeepThePromise) {
  SurvivorAgreement voter({.place_of = {0, 1, 2},
                           .nodes = 3,
                           .here = 2,
                           .tie_breaker = std::nullopt,
                           .known = {true, true, true}});
  for (const std::uint32_t place : {0U, 1U}) voter.set_fate(place, NodeFate::kLinked);
  const auto answer = [&](std::uint32_t from, Kind kind, Ballot ballot, MemberBits value) {
    AgreementMessage message;
    message.kind = kind;
    message.ballot = ballot;
    message.value = std::move(value);
    voter.hear(from, message);
    auto out = voter.take_outgoing();
    EXPECT_EQ(out.size(), 1u);
    return out.front().message;
  };
  EXPECT_EQ(answer(0, Kind::kPrepare, {1, 0}, {}).kind, Kind::kPromise);
  EXPECT_EQ(answer(1, Kind::kPrepare, {1, 1}, {}).kind, Kind::kPromise);
  EXPECT_EQ(answer(0, Kind::kAccept, {1, 0}, {true, false, true}).kind, Kind::kRefused);
  EXPECT_EQ(answer(1, Kind::kAccept, {1, 1}, {false, true, true}).kind, Kind::kAccepted);
  EXPECT_EQ(answer(0, Kind::kPrepare, {1, 0}, {}).kind, Kind::kRefused);
  const AgreementMessage promise = answer(0, Kind::kPrepare, {2, 0}, {});
  EXPECT_EQ(promise.kind, Kind::kPromise);
  EXPECT_EQ(promise.accepted, (Ballot{1, 1}));
  EXPECT_EQ(promise.value, (MemberBits{false, true, true}));
}

TEST(SurvivorAgreement, ReadOnlyWholeMessages) {
  AgreementMessage said;
  said.asked = MemberBits(9, true);
  said.waited = MemberBits(9);
  said.votes = true;
  std::vector<std::byte> bytes = bytes_of_agreement({77, said});
  const auto sent = read_agreement(bytes);
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ(sent->group, 77u);
  EXPECT_THAT(sent->message.asked, Each(true));
  EXPECT_THAT(sent->message.waited, Each(false));
  EXPECT_TRUE(sent->message.votes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(read_agreement(std::span(bytes).first(cut)).has_value()) << cut;
  bytes[4] = std::byte{99};  // its step
  EXPECT_FALSE(read_agreement(bytes).has_value());
}

// ---- courses drawn from a seed -----------------------------------------------------------------

class Course {
 public:
  explicit Course(std::uint64_t seed) : random_(seed), world_(drawn_members(), drawn_tie_breaker()) {}

  void run() {
    const bool contested = draw(2) == 0;
    if (contested)
      for (std::uint32_t n = 0; n < world_.size(); ++n) world_.ask_all(n);
    const std::uint64_t events = 20 + draw(60);
    for (std::uint64_t i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      if (contested) {
        contest();
      } else {
        event();
      }
      for (std::uint64_t d = draw(contested ? 4 : 8); d > 0; --d) world_.deliver(random_);
      judge();
    }
    end_well();
  }

 private:
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  std::uint32_t any() { return static_cast<std::uint32_t>(draw(world_.size())); }
  std::vector<std::uint32_t> drawn_members() {
    std::vector<std::uint32_t> members(2 + draw(4));
    for (std::uint32_t& count : members) count = static_cast<std::uint32_t>(1 + draw(3));
    return members;
  }
  std::optional<std::uint32_t> drawn_tie_breaker() {
    return draw(2) == 0 ? std::nullopt : std::optional<std::uint32_t>(0);
  }

  void event() {
    const std::uint32_t a = any(), b = any();
    world_.pass(Nanos(std::chrono::milliseconds(draw(120))));
    switch (draw(12)) {
      case 0:
        if (world_[a].lives) world_.lose_member(a, draw(world_[a].attached.size()));
        break;
      case 1:
        if (draw(3) == 0 && world_[a].lives) world_.kill(a);
        break;
      case 2:
        if (a != b && draw(2) == 0 && world_.linked(a, b)) world_.cut(a, b);
        break;
      case 3:
      case 4:
        if (a != b) learn(a, b);
        break;
      case 5:
        if (!world_[a].lives) {  // it begins again, and its members with it, who did not hear of the loss
          world_.begin(a, false);
          if (draw(2) == 0) world_[a].attached.assign(world_[a].attached.size(), true);
        }
        break;
      case 6:
        if (a != b && draw(2) == 0) world_.link(a, b);
        break;
      case 7:
      case 8:
        if (world_[a].lives) world_.ask(a, draw(world_[a].asks.size()));
        break;
      default:
        world_.tick(a);
    }
  }

  // Ballots of several leaders at once: connections break and come back between any two messages.
  void contest() {
    const std::uint32_t a = any(), b = any();
    world_.pass(Nanos(std::chrono::milliseconds(draw(200))));
    switch (draw(8)) {
      case 0:
        if (a == b || !world_.linked(a, b)) break;
        world_.cut(a, b);
        learn(a, b);
        learn(b, a);
        break;
      case 1:
        if (a != b) world_.link(a, b);
        break;
      case 2:
        for (std::uint32_t n = 0; n < world_.size(); ++n)
          if (world_[n].lives) world_.ask_all(n);
        break;
      case 3:
        if (draw(4) == 0) event();
        break;
      default:
        world_.tick(a);
    }
  }

  // Passes on a supervisor's report on a node that is not linked.
  void learn(std::uint32_t at, std::uint32_t of) {
    if (!world_[at].lives || world_.linked(at, of) || world_[at].core->node(of).fate == NodeFate::kDead)
      return;
    world_.fate(at, of, world_[of].lives ? NodeFate::kSilent : NodeFate::kDead);
  }

  // No two nodes that live have decided differently in one round.
  void judge() {
    std::map<std::uint64_t, std::string> lists;
    for (std::uint32_t n = 0; n < world_.size(); ++n) {
      if (!world_[n].lives) continue;
      for (const auto& decision : world_[n].decided) {
        const std::string list = text_of(decision.survivors);
        const auto [known, fresh] = lists.emplace(decision.round, list);
        ASSERT_EQ(known->second, list) << "round " << decision.round << " at node " << n;
      }
    }
  }

  // Once all reach each other again and all want to go on, they do, in one list. Before that they may finish
  // what was accepted while some were away.
  void end_well() {
    for (std::uint32_t n = 0; n < world_.size(); ++n) {
      if (!world_[n].lives) world_.begin(n, false);
      for (std::uint32_t other = 0; other < n; ++other) world_.link(n, other);
    }
    constexpr int kAttempts = 3;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      for (std::uint32_t n = 0; n < world_.size(); ++n)
        world_[n].attached.assign(world_[n].attached.size(), true);
      for (std::uint32_t n = 0; n < world_.size(); ++n) world_.ask_all(n);
      world_.run(random_);
      judge();
    }
    for (std::uint32_t n = 0; n < world_.size(); ++n) {
      EXPECT_FALSE(world_[n].core->open()) << "node " << n;
      EXPECT_EQ(latest(world_, n).find_first_not_of('1'), std::string::npos) << latest(world_, n);
    }
  }

  std::mt19937_64 random_;
  World world_;
};

// Goal:   whatever dies, is parted, comes back or comes late, and in whatever order messages come: in no
//         round do two that live have different lists; and when all is well, there is one.
// Method: each seed draws nodes, members and events. MUSTER_AGREEMENT_SEEDS=1000000 tries more of them.
TEST(SurvivorAgreement, IsOneListInEachRound) {
  const char* const wanted = std::getenv("MUSTER_AGREEMENT_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 5000;
  for (std::uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Course(seed).run();
  }
}

}  // namespace
}  // namespace muster::engine
