#include "daemon/supervisor/spanning/engine_link.hpp"

#include "tests/support/state_tables.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using State = LinkMachine::State;
using Event = LinkMachine::Event;
using ::testing::Contains;
using ::testing::IsEmpty;

constexpr std::uint32_t kOwn = 1;  // the generation that this node's engine knows
constexpr const char* kPage = "daemon/supervisor/spanning/machines.md";

struct Role {
  const char* name;
  bool asks;
  const LinkMachine::Table& table;
};
const Role kRoles[] = {{"first", true, kLinkOfFirst}, {"second", false, kLinkOfSecond}};

// Notes what a link does, in words.
class NotingWorld final : public EngineLink::World {
 public:
  bool may = false;
  std::multiset<std::string> did;
  std::map<control::Loop::Watch, std::function<void()>> timers;
  std::vector<std::function<void()>> answers;  // to all questions

  bool may_try(const EngineLink&) const override { return may; }
  void send(const EngineLink&, const char* step, const control::EngineAddress*,
            std::uint32_t generation) override {
    did.insert(fmt::format("sends {} {}", step, generation));
  }
  void ask_engine(const EngineLink&, Answered answered) override {
    did.insert("asks the engine");
    answers.push_back([answered] { answered(EngineLink::Network{}); });
    answers.push_back([answered] { answered(muster::fail(Code::kState, "no answer")); });
  }
  void connect(const EngineLink&, const control::EngineCall& call,
               std::function<void(const Status&)> answered) override {
    did.insert(fmt::format("connects {}", call.generation));
    answers.push_back([answered] { answered(failure(Code::kState, "no")); });
  }
  void tell_lost(const EngineLink&, const Status&, EngineLink::Fate) override {
    did.insert("tells the engine");
  }
  control::Loop::Watch after(Nanos delay, std::function<void()> callback) override {
    did.insert(delay == EngineLink::kAnswerTime ? "waits for an answer" : "waits");
    timers[++last_] = std::move(callback);
    return last_;
  }
  void unwatch(control::Loop::Watch watch) override {
    if (timers.erase(watch) != 0) did.insert("waits no longer");
  }
  void changed() override { did.insert("reports"); }
  void refused(const EngineLink&, const Status&) override { did.insert("refuses"); }

 private:
  control::Loop::Watch last_ = 0;
};

// The link as it is told in words, by flags: what each event does, whatever the state is. It knows no table.
struct FlaggedLink {
  enum class Traffic : std::uint8_t { kApart, kAsking, kConnecting, kConnected };
  enum class Timer : std::uint8_t { kNone, kRetry, kAnswer };

  bool asks = false;
  bool stands = false;
  bool adopted = false;  // the engine has not said yet whether it is connected
  bool called = false;   // a `join` is kept
  bool yields = false;
  bool failed = false;
  std::uint32_t call = 0;  // the generation of the other node's call
  Traffic traffic = Traffic::kApart;
  Timer timer = Timer::kNone;
  bool may = false;
  std::multiset<std::string> did;

  auto facts() const { return std::tie(stands, adopted, called, yields, failed, traffic, timer); }
  State state() const {
    if (!stands) return called ? State::kCalled : State::kAbsent;
    if (yields) return State::kYielding;
    if (adopted) return State::kAdopted;
    if (traffic == Traffic::kConnected) return State::kConnected;
    if (traffic == Traffic::kConnecting) return State::kConnecting;
    if (traffic == Traffic::kAsking) return asks ? State::kAsking : State::kAnswering;
    if (timer == Timer::kNone) return State::kResting;
    return timer == Timer::kRetry ? State::kPausing : State::kPrompting;
  }
  bool refuse() { return did.insert("refuses"), false; }

  void turn(Traffic next) {
    if (std::exchange(timer, Timer::kNone) != Timer::kNone) did.insert("waits no longer");
    traffic = next;
    adopted = yields = false;
  }
  void wait(Timer what) {
    timer = what;
    did.insert(what == Timer::kAnswer ? "waits for an answer" : "waits");
  }
  void part() {
    turn(Traffic::kApart);
    wait(Timer::kRetry);
    called = false;
    failed = true;
    did.insert("reports");
  }
  void lose() {
    did.insert("tells the engine");
    if (traffic != Traffic::kApart) part();
  }
  void attempt() {
    if (!stands || traffic != Traffic::kApart || !may) return;
    turn(asks ? Traffic::kAsking : Traffic::kApart);
    wait(Timer::kAnswer);
    did.insert(asks ? "asks the engine" : "sends apart 0");
  }
  void answer() {
    turn(Traffic::kAsking);
    did.insert("asks the engine");
  }
  void connect(std::uint32_t generation) {
    turn(Traffic::kConnecting);
    did.insert(fmt::format("connects {}", generation));
  }
  void begin(Event how) {
    stands = true;
    failed = false;
    if (how == Event::kBeginsConnected) called = false;
    if (how != Event::kBeginsApart) traffic = Traffic::kConnected;
    if (how == Event::kBeginsAdopted) {
      adopted = true;
      did.insert("asks the engine");
    } else if (how == Event::kBeginsApart) {
      called ? answer() : attempt();
    }
  }

  // False: this is an error.
  bool hear(Event event, std::uint32_t generation) {
    const bool joins = event == Event::kJoin || event == Event::kJoinElsewhere;
    if (joins == asks || (event == Event::kJoinElsewhere && !stands)) return refuse();
    if (event == Event::kHere && !stands) return refuse();
    if (joins) {
      called = true;
      call = generation;
      if (event == Event::kJoin && stands) answer();
      if (event == Event::kJoinElsewhere) {
        turn(Traffic::kApart);
        yields = true;
      }
    } else if (event == Event::kHere && traffic == Traffic::kAsking) {
      connect(generation);
    } else if (event == Event::kApart && stands) {
      if (traffic == Traffic::kConnected) lose();
      attempt();
    }
    return true;
  }
  bool hear_engine(Event event) {
    if (!stands) return refuse();
    if (event == Event::kNetwork) {
      if (traffic != Traffic::kAsking) return refuse();
      if (asks) return did.insert(fmt::format("sends join {}", kOwn)), true;
      ++call;  // it is larger than kOwn
      did.insert(fmt::format("sends here {}", call));
      called = false;
      connect(call);
    } else if (event == Event::kStillConnected || event == Event::kNotConnected) {
      if (!adopted) return refuse();
      if (event == Event::kNotConnected) part();
      adopted = false;
      attempt();
    } else if (event == Event::kRefused) {
      if (!adopted && traffic != Traffic::kAsking && traffic != Traffic::kConnecting) return refuse();
      part();
    } else if (event == Event::kReached && traffic == Traffic::kConnecting) {
      turn(Traffic::kConnected);
      failed = false;
      did.insert("reports");
    } else if (event == Event::kParted && traffic >= Traffic::kConnecting) {
      part();
    }
    return true;
  }

  void take(Event event, std::uint32_t generation) {
    if (yields && event != Event::kEnds && event != Event::kJoin && event != Event::kJoinElsewhere)
      return void(refuse());
    switch (event) {
      case Event::kBeginsConnected:
      case Event::kBeginsApart:
      case Event::kBeginsAdopted:
        if (stands || (event == Event::kBeginsAdopted && called)) return void(refuse());
        return begin(event);
      case Event::kEnds:
        if (stands) turn(Traffic::kApart);
        stands = failed = false;
        return;
      case Event::kUpElsewhere:
        if (!stands) return void(refuse());
        called = failed = false;
        lose();
        return attempt();
      case Event::kUp:
      case Event::kDown:
        called = false;
        if (event == Event::kUp) failed = false;
        if (traffic == Traffic::kAsking) turn(Traffic::kApart);
        if (event == Event::kUp) attempt();
        return;
      case Event::kLost:
        if (stands) lose();
        return;
      case Event::kGone:
        called = false;
        if (stands) lose();
        return;
      case Event::kJoin:
      case Event::kJoinElsewhere:
      case Event::kHere:
      case Event::kHereElsewhere:
      case Event::kApart:
        return void(hear(event, generation));
      case Event::kMay:
        if (!stands || traffic != Traffic::kApart) return void(refuse());
        may = true;
        return attempt();
      case Event::kTime: {
        const Timer was = std::exchange(timer, Timer::kNone);
        if (was == Timer::kNone) return void(refuse());
        return was == Timer::kRetry ? attempt() : part();
      }
      default:
        return void(hear_engine(event));
    }
  }
};

struct Input {
  Event event;
  bool may = false;  // the other node can be asked
};
using Path = std::vector<Input>;

std::string text_of(const Path& path) {
  std::string text;
  for (const Input& input : path)
    text += fmt::format("{}{}; ", LinkMachine::kEvents[static_cast<std::size_t>(input.event)],
                        input.may ? " (may)" : "");
  return text;
}

// Drives a link, and the flags beside it.
struct Walk {
  NotingWorld world;
  EngineLink link;
  FlaggedLink flags;
  std::uint32_t generation = 0;

  Walk(const Role& role, const LinkMachine::Table& table)
      : link(world, {"train", "node1", NodeIndex(1), role.asks}, table) {
    flags.asks = role.asks;
  }
  bool is_alike() const {
    const bool waits = flags.timer != FlaggedLink::Timer::kNone;
    const bool apart = flags.traffic == FlaggedLink::Traffic::kApart;
    return world.did == flags.did && world.timers.size() == (waits ? 1 : 0) &&
           link.is_connected() == (flags.traffic == FlaggedLink::Traffic::kConnected) &&
           link.has_failed() == (apart && !flags.yields && flags.failed);
  }
  // Whether the link has done what the flags say.
  bool take(const Input& input) {
    generation += 3;
    world.may = flags.may = input.may;
    world.did.clear();
    flags.did.clear();
    flags.take(input.event, generation);
    const control::EngineCall call{NodeIndex(1), {}, generation};
    const bool calls = input.event >= Event::kJoin && input.event <= Event::kHereElsewhere;
    const EngineLink::Network network{{}, kOwn, false, "", Nanos(0)};
    if (input.event == Event::kTime && !world.timers.empty()) {
      const auto timer = world.timers.extract(world.timers.begin());
      timer.mapped()();
    } else {
      link.take(
          input.event,
          {.why = failure(Code::kPeerLost, "so"), .call = calls ? &call : nullptr, .network = &network});
    }
    return is_alike();
  }
};

// A path to each combination of flags, and the state that it leads to.
struct Start {
  Path path;
  State state;
};
std::vector<Start> starts_of(const Role& role) {
  std::vector<Start> starts{{{}, State::kAbsent}};
  std::set<std::string> known;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    for (const Event event : test::events_of<LinkMachine>()) {
      for (const bool may : {false, true}) {
        Path path = starts[i].path;
        path.push_back({event, may});
        FlaggedLink flags{.asks = role.asks};
        for (const Input& input : path) {
          flags.may = input.may;
          flags.take(input.event, 0);
        }
        const auto key =
            std::apply([](const auto&... fact) { return (std::to_string(static_cast<int>(fact)) + ...); },
                       flags.facts());
        if (known.insert(key).second) starts.push_back({path, flags.state()});
      }
    }
  }
  return starts;
}

// The end of each walk, in which a kept call and a state that differs show.
const Path kEnd = {{Event::kTime, true}, {Event::kBeginsApart, true}, {Event::kNetwork}, {Event::kReached}};

// Walks each pair of events that begins so after that path; the first that goes wrong, or "".
std::string fault_after(const Path& path, Event first, const Role& role, const LinkMachine::Table& table) {
  for (const Event second : test::events_of<LinkMachine>()) {
    for (const bool may : {false, true}) {
      Path whole = path;
      whole.push_back({first, may});
      whole.push_back({second, !may || second == Event::kTime});
      whole.insert(whole.end(), kEnd.begin(), kEnd.end());
      Walk walk(role, table);
      for (const Input& input : whole)
        if (!walk.take(input)) return text_of(whole);
    }
  }
  return "";
}

// Goal:   the tables do what the link was told to do before it had any.
// Method: walk every pair of events from every state that can be reached, beside a link that knows no table.
TEST(EngineLink, DoesWhatItsFlagsWouldInEveryPairOfEvents) {
  for (const Role& role : kRoles) {
    std::set<State> states;
    for (const auto& [path, state] : starts_of(role)) {
      states.insert(state);
      for (const Event first : test::events_of<LinkMachine>())
        EXPECT_EQ(fault_after(path, first, role, role.table), "") << role.name;
    }
    EXPECT_EQ(states.size(), test::states_of(role.table).size());
  }
}

TEST(EngineLink, WalkFindsEveryWrongCell) {
  for (const Role& role : kRoles) {
    const auto starts = starts_of(role);
    const auto tables = test::planted(role.table, LinkMachine::Action::kNone, LinkMachine::Action::kFail);
    EXPECT_GT(tables.size(), 500U);
    for (const auto& wrong : tables)
      EXPECT_TRUE(std::any_of(starts.begin(), starts.end(),
                              [&](const Start& start) {
                                return start.state == wrong.state &&
                                       !fault_after(start.path, wrong.event, role, wrong.table).empty();
                              }))
          << role.name << ": " << wrong.text;
  }
}

TEST(EngineLink, WaitsExactlyInTheStatesThatEndByTime) {
  for (const Role& role : kRoles) {
    for (const State state : test::states_of(role.table)) {
      const bool waits = LinkMachine::timer_of(state) != LinkMachine::Timer::kNone;
      EXPECT_EQ(role.table.find(state, Event::kTime) != nullptr, waits)
          << LinkMachine::kStates[static_cast<std::size_t>(state)];
    }
  }
}

// Goal: from each state the link can become connected, and the part can end.
TEST(EngineLink, HasAWayOutOfEachState) {
  for (const Role& role : kRoles) {
    EXPECT_EQ(test::reachable(role.table, State::kAbsent).size(), test::states_of(role.table).size());
    for (const State state : test::states_of(role.table)) {
      EXPECT_THAT(test::reachable(role.table, state), Contains(State::kConnected));
      EXPECT_THAT(test::reachable(role.table, state), Contains(State::kAbsent));
      EXPECT_NE(role.table.find(state, Event::kEnds), nullptr);
    }
  }
}

// Goal:   the engine's answers to questions of an earlier state do not count.
// Method: ask in each state, leave it by each event, and answer then.
TEST(EngineLink, TakesNoAnswerToAnEarlierQuestion) {
  for (const Role& role : kRoles) {
    for (const auto& [path, state] : starts_of(role)) {
      for (const Event event : test::events_of<LinkMachine>()) {
        Walk walk(role, role.table);
        for (const Input& input : path) walk.take(input);
        const auto answers = std::exchange(walk.world.answers, {});
        walk.world.may = false;
        walk.world.did.clear();
        walk.take({event});
        const bool goes_on = walk.world.did.empty() || walk.world.did.contains("refuses");
        if (goes_on || walk.world.did.contains(fmt::format("sends join {}", kOwn))) continue;
        walk.world.did.clear();
        for (const auto& answer : answers) answer();
        EXPECT_THAT(walk.world.did, IsEmpty()) << text_of(path) << LinkMachine::kEvents[std::size_t(event)];
      }
    }
  }
}

TEST(EngineLink, NamesStateAndEventThatDoNotFit) {
  StateMachine<LinkMachine> machine(kLinkOfFirst, State::kAbsent);
  const auto step = machine.take(Event::kJoin);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().message(), "state \"absent\" has no event \"`join`\"");
  EXPECT_EQ(machine.state(), State::kAbsent);
}

TEST(EngineLink, IsShownOnItsPage) {
  test::expect_on_page(kLinkOfFirst, MUSTER_SOURCE_DIR, kPage);
  test::expect_on_page(kLinkOfSecond, MUSTER_SOURCE_DIR, kPage);
}

}  // namespace
}  // namespace muster::supervisor
