#include "daemon/supervisor/spanning/job_making.hpp"

#include "tests/support/state_tables.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::Contains;

using Making = MakingMachine;
using MakingState = Making::State;
using MakingEvent = Making::Event;

// A job of node0, which leads, node1 and node2. This is node0 or node1.
struct Maker {
  const char* name;
  std::uint32_t here;
  const MakingMachine::Table& table;
};
const Maker kMakers[] = {{"leader", 0, kMakingOfLeader}, {"other", 1, kMakingOfOthers}};

control::JobSpec spec_on(std::uint32_t here) {
  control::JobSpec spec;
  spec.name = "train";
  spec.mesh = "dp_shard=3";
  const std::uint32_t node_of[] = {0, 1, 2};
  spec.world = *World::build({"node0", "node1", "node2"}, node_of, NodeIndex(here));
  return spec;
}

// Notes what an attempt does, in words.
class MakersWorld final : public JobMaking::World {
 public:
  std::multiset<std::string> did;
  std::function<void()> timer;
  std::function<void(const Status&)> connected;

  void send(const std::string& node, const Json& message) override {
    const bool failed = message.contains("status");
    did.insert(fmt::format("sends {}{} to {}", message.value("step", ""), failed ? ", failed," : "", node));
  }
  void connect(std::span<const control::EngineCall> calls,
               std::function<void(const Status&)> answered) override {
    did.insert(fmt::format("connects with {}", calls.size()));
    connected = std::move(answered);
  }
  std::string interfaces_text() const override { return "by lo"; }
  control::Loop::Watch after(Nanos, std::function<void()> callback) override {
    did.insert("waits");
    timer = std::move(callback);
    return 1;
  }
  void unwatch(control::Loop::Watch watch) override {
    if (watch == 0) return;
    did.insert("waits no longer");
    timer = nullptr;
  }
  void refused(const Status&) override { did.insert("refuses"); }
};

// The protocol as it is told in words (job_making.hpp), by conditions instead of a table.
struct ToldMaking {
  bool leads = false;
  MakingState state = MakingState::kIdle;
  std::set<int> unanswered;
  std::set<int> unconnected;
  bool fits = true;
  bool waits = false;
  std::multiset<std::string> did;

  auto facts() const {
    return std::tuple(state, unanswered.contains(0), unanswered.size(), unconnected.size(), fits, waits);
  }
  bool prepares() const { return state == MakingState::kPreparing || state == MakingState::kHeld; }
  bool connects() const { return state == MakingState::kConnecting || state == MakingState::kConnected; }
  bool is(MakingState other) const { return state == other; }
  void note(const std::string& what) { did.insert(what); }
  void tell_all(const std::string& step) {
    for (const char* node : {"node1", "node2"}) note("sends " + step + " to " + node);
  }
  void stop() {
    state = MakingState::kIdle;
    if (std::exchange(waits, false)) note("waits no longer");
  }
  void end(bool well) {
    stop();
    note(well ? "is made" : "is not made");
  }
  void fail_here(const std::string& step) {
    stop();
    note("has failed here");
    note("sends " + step + ", failed, to node0");
  }
  void connect() {
    state = MakingState::kConnecting;
    unconnected = leads ? std::set{1, 2} : std::set{0, 2};
    note("connects with 2");
  }
  void answered(int node) {
    unanswered.erase(node);
    if (!unanswered.empty()) return;
    if (connects()) {
      tell_all("commit");
      return end(true);
    }
    if (!fits) return end(false);
    unanswered = {0, 1, 2};
    tell_all("connect");
    connect();
  }

  void begin() {
    stop();
    state = MakingState::kPreparing;
    if (!leads) return;
    unanswered = {0, 1, 2};
    fits = waits = true;
    tell_all("prepare");
    note("waits");
  }
  void held(bool well) {
    if (is(MakingState::kIdle)) return;
    if (!is(MakingState::kPreparing)) return note("refuses");
    if (!well) return leads ? end(false) : fail_here("prepared");
    state = MakingState::kHeld;
    leads ? answered(0) : note("sends prepared to node0");
  }
  void word(int node, bool well) {
    unconnected.erase(node);
    if (well && !unconnected.empty()) return;
    if (is(MakingState::kPreparing)) return note("refuses");
    if (!connects() || (well && is(MakingState::kConnected))) return;
    if (!well) return leads ? end(false) : fail_here("connected");
    state = MakingState::kConnected;
    leads ? answered(0) : note("sends connected to node0");
  }
  void answer(int node, bool of_connecting, bool well) {
    if (!leads || !unanswered.contains(node)) return;
    if (of_connecting ? !connects() : !prepares()) return note("refuses");
    well ? answered(node) : end(false);
  }
  void hear_connect(bool well) {
    if (leads || (is(MakingState::kIdle) && well)) return;
    if (!is(MakingState::kHeld)) return note("refuses");
    well ? connect() : fail_here("connected");
  }
  void commit() {
    if (leads || is(MakingState::kIdle)) return;
    is(MakingState::kConnected) ? end(true) : note("refuses");
  }
  void time() {
    if (std::exchange(waits, false)) end(false);
  }
};

const Status kBad(Code::kState, "bad");

Json answer_of(const char* step, bool well, const char* groups = "g") {
  Json message = well ? Json{{"groups", groups}} : control::failed(kBad);
  message["step"] = step;
  return message;
}

// Both are driven together.
struct Drive {
  control::JobSpec spec;
  MakersWorld world;
  JobMaking making;
  ToldMaking told;

  Drive(const Maker& maker, const MakingMachine::Table& table)
      : spec(spec_on(maker.here)),
        making(
            world, table, spec, "node0",
            {.ended = [this](const Status& how) { world.did.insert(how.ok() ? "is made" : "is not made"); },
             .failed_here = [this](const Status&) { world.did.insert("has failed here"); }}) {
    told.leads = maker.here == 0;
  }
  bool is_alike() const {
    const bool holds = told.state > MakingState::kPreparing;
    return world.did == told.did && (world.timer != nullptr) == told.waits && making.holds() == holds;
  }
  void hear(int node, const Json& message) {
    making.hear(fmt::format("node{}", node), message.at("step"), message);
  }
};

struct Step {
  std::string_view text;
  std::function<void(Drive&)> take;
};

const std::string_view kReached = "reached", kConnected = "connected";

std::vector<Step> steps() {
  std::vector<Step> steps;
  const auto add = [&](std::string_view text, std::function<void(Drive&)> take) {
    steps.push_back({text, take});
  };
  add("begin", [](Drive& d) { d.making.begin(7, JobMaking::kPrepareTime), d.told.begin(); });
  add("stop", [](Drive& d) { d.making.stop(), d.told.stop(); });
  add("held", [](Drive& d) { d.making.held(RunningJobs::HeldEngine{{}, "g"}), d.told.held(true); });
  add("not held", [](Drive& d) { d.making.held(fail(kBad)), d.told.held(false); });
  for (const int node : {0, 1, 2})
    add(kReached, [node](Drive& d) {
      d.making.on_word({NodeIndex(std::uint32_t(node)), 0, {}}), d.told.word(node, true);
    });
  add("unreached", [](Drive& d) { d.making.on_word({NodeIndex(2), 0, kBad}), d.told.word(2, false); });
  add("not connected", [](Drive& d) {
    if (d.world.connected == nullptr) return;
    d.world.connected(kBad);
    // It says of no node that it was reached.
    const auto unconnected = d.told.unconnected;
    d.told.word(-1, false);
    d.told.unconnected = unconnected;
  });
  for (const int node : {1, 2}) {
    add("prepared",
        [node](Drive& d) { d.hear(node, answer_of("prepared", true)), d.told.answer(node, false, true); });
    add("connected",
        [node](Drive& d) { d.hear(node, answer_of("connected", true)), d.told.answer(node, true, true); });
  }
  add("prepared, failed",
      [](Drive& d) { d.hear(2, answer_of("prepared", false)), d.told.answer(2, false, false); });
  add("prepared, other groups", [](Drive& d) {
    if (d.told.leads && d.told.unanswered.contains(2) && d.told.prepares()) d.told.fits = false;
    d.hear(2, answer_of("prepared", true, "h")), d.told.answer(2, false, true);
  });
  add("connected, failed",
      [](Drive& d) { d.hear(2, answer_of("connected", false)), d.told.answer(2, true, false); });
  Json addresses{{"step", "connect"}};
  EXPECT_TRUE(control::write_addresses(std::vector<control::EngineAddress>(3), addresses).ok());
  add("connect", [message = addresses](Drive& d) {
    if (d.told.leads) return;
    d.hear(0, message), d.told.hear_connect(true);
  });
  add("connect, malformed", [](Drive& d) {
    if (d.told.leads) return;
    d.hear(0, {{"step", "connect"}, {"addresses", 3}}), d.told.hear_connect(false);
  });
  add("commit", [](Drive& d) {
    if (d.told.leads) return;
    d.hear(0, {{"step", "commit"}}), d.told.commit();
  });
  add("time", [](Drive& d) {
    if (const auto timer = std::exchange(d.world.timer, nullptr)) timer();
    d.told.time();
  });
  return steps;
}
const std::vector<Step> kSteps = steps();

using Steps = std::vector<const Step*>;

// "": the attempt does what it is told.
std::string fault_of(const Steps& steps, const Maker& maker, const MakingMachine::Table& table) {
  Drive drive(maker, table);
  for (const Step* const step : steps) {
    drive.world.did.clear();
    drive.told.did.clear();
    step->take(drive);
    if (drive.is_alike()) continue;
    std::string text;
    for (const Step* const each : steps) text += std::string(each->text) + "; ";
    return text + fmt::format("at {}: did {}, told {}", step->text, fmt::join(drive.world.did, ", "),
                              fmt::join(drive.told.did, ", "));
  }
  return "";
}

struct MakingStart {
  Steps steps;
  MakingState state;
};
std::vector<MakingStart> starts_of(const Maker& maker) {
  std::vector<MakingStart> starts{{{}, MakingState::kIdle}};
  std::set<decltype(std::declval<ToldMaking>().facts())> known;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    for (const Step& step : kSteps) {
      Steps path = starts[i].steps;
      path.push_back(&step);
      Drive drive(maker, maker.table);
      for (const Step* const each : path) each->take(drive);
      if (known.insert(drive.told.facts()).second) starts.push_back({path, drive.told.state});
    }
  }
  return starts;
}

// Every pair of steps after that path; the first fault, or "".
std::string fault_after(const Steps& path, const Maker& maker, const MakingMachine::Table& table) {
  for (const Step& first : kSteps) {
    for (const Step& second : kSteps) {
      Steps whole = path;
      whole.insert(whole.end(), {&first, &second});
      if (std::string fault = fault_of(whole, maker, table); !fault.empty()) return fault;
    }
  }
  return "";
}

// One step after that path, and then all reports and answers, in which a state that differs shows.
std::string fault_at_last(const Steps& path, const Maker& maker, const MakingMachine::Table& table) {
  for (const Step& first : kSteps) {
    Steps whole = path;
    whole.push_back(&first);
    for (const Step& step : kSteps)
      if (step.text == kReached || step.text == kConnected) whole.push_back(&step);
    if (std::string fault = fault_of(whole, maker, table); !fault.empty()) return fault;
  }
  return "";
}

// The table knows an event which this node never raises in that state.
bool knows_too_much(const Maker& maker, const MakingMachine::Table& table) {
  const bool leads = maker.here == 0;
  for (const MakingState state : test::all_of<MakingState>(Making::kStates)) {
    for (const MakingEvent event : test::events_of<Making>()) {
      if (table.find(state, event) == nullptr) continue;
      if (event == MakingEvent::kBegins && state != MakingState::kIdle) return true;
      if (event == MakingEvent::kTime && state == MakingState::kIdle) return true;
      const bool all = event == MakingEvent::kAllPrepared || event == MakingEvent::kUnfit;
      if (all && state != MakingState::kHeld) return true;
      if (event == MakingEvent::kAllConnected && state != MakingState::kConnected) return true;
      const bool of_leader = event >= MakingEvent::kPrepared && event <= MakingEvent::kTime;
      if (event >= MakingEvent::kPrepared && of_leader != leads) return true;
    }
  }
  return false;
}

// Goal:   the tables do what the protocol says.
// Method: walk every pair of events from every state and every set of answers, beside a maker without a
// table.
TEST(JobMaking, DoesWhatItIsToldInEveryPairOfEvents) {
  for (const Maker& maker : kMakers) {
    EXPECT_FALSE(knows_too_much(maker, maker.table));
    std::set<MakingState> states;
    for (const auto& [path, state] : starts_of(maker)) {
      states.insert(state);
      EXPECT_EQ(fault_after(path, maker, maker.table), "") << maker.name;
    }
    EXPECT_EQ(states.size(), Making::kStates.size());
  }
}

TEST(JobMaking, WalkFindsEveryWrongCell) {
  for (const Maker& maker : kMakers) {
    const auto starts = starts_of(maker);
    const auto tables = test::planted(maker.table, Making::Action::kNone, Making::Action::kFail);
    EXPECT_GT(tables.size(), 100U);
    for (const auto& wrong : tables) {
      const bool found =
          knows_too_much(maker, wrong.table) ||
          std::any_of(starts.begin(), starts.end(), [&](const MakingStart& start) {
            return start.state == wrong.state && (!fault_at_last(start.steps, maker, wrong.table).empty() ||
                                                  !fault_after(start.steps, maker, wrong.table).empty());
          });
      EXPECT_TRUE(found) << maker.name << ": " << wrong.text;
    }
  }
}

TEST(JobMaking, HasAWayOutOfEachState) {
  for (const Maker& maker : kMakers) {
    EXPECT_EQ(test::reachable(maker.table, MakingState::kIdle).size(), Making::kStates.size());
    for (const MakingState state : test::states_of(maker.table)) {
      EXPECT_THAT(test::reachable(maker.table, state), Contains(MakingState::kIdle));
      EXPECT_NE(maker.table.find(state, MakingEvent::kStops), nullptr);
      // The leader waits for all; so its time ends every state but the first.
      const bool ends_by_time = maker.table.find(state, MakingEvent::kTime) != nullptr;
      EXPECT_EQ(ends_by_time, maker.here == 0 && state != MakingState::kIdle);
    }
  }
}

TEST(JobMaking, IsShownOnItsPage) {
  for (const Maker& maker : kMakers)
    test::expect_on_page(maker.table, MUSTER_SOURCE_DIR, "daemon/supervisor/spanning/machines.md");
}

}  // namespace
}  // namespace muster::supervisor
